package envelope

import (
	"io"
	"net/http"
	"os"
	"strconv"
)

// SendFile answers with a whole file, which is like no other one.
func SendFile(w http.ResponseWriter, file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	w.Header().Set("Content-Length", strconv.FormatInt(info.Size(), 10))
	w.Header().Set("Cache-Control", "no-store")
	_, err = io.CopyN(w, file, info.Size())
	return err
}
