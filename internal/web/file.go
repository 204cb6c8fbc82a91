package web

import (
	"io"
	"net/http"
	"os"
	"strconv"
)

// SendFile answers with a whole file. It calls atEnd before it sends the last octet, because a client that
// has the whole file may send its next request at once.
func SendFile(w http.ResponseWriter, file *os.File, atEnd func()) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	w.Header().Set("Content-Length", strconv.FormatInt(info.Size(), 10))
	if _, err := io.CopyN(w, file, max(0, info.Size()-1)); err != nil {
		return err
	}
	atEnd()
	_, err = io.Copy(w, file)
	return err
}

// Attachment sets the header of a file that clients store and caches do not.
func Attachment(h http.Header, mediaType, name string) {
	Private(h, mediaType)
	h.Set("Content-Disposition", `attachment; filename="`+name+`"`)
}
