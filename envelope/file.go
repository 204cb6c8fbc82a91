package envelope

import (
	"io"
	"net/http"
	"os"
	"strconv"
	"time"
)

// A client has to take a part of a file within a time: while it does not, the file
// fills the disk, and nobody else gets one.
const (
	filePart = 16 << 20
	partTime = time.Minute
)

// SendFile answers with a whole file, which is like no other one.
func SendFile(w http.ResponseWriter, file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	w.Header().Set("Content-Length", strconv.FormatInt(info.Size(), 10))
	w.Header().Set("Cache-Control", "no-store")
	connection := http.NewResponseController(w)
	for err == nil {
		connection.SetWriteDeadline(time.Now().Add(partTime))
		_, err = io.CopyN(w, file, filePart)
	}
	connection.SetWriteDeadline(time.Time{})
	if err == io.EOF {
		return nil
	}
	return err
}
