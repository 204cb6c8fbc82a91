// Command floor is a server that does nothing: it reads a request and writes an
// answer as the program does, on the same kind of mux, and has no database. What
// the program takes beyond it is the program's own.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"

	"meshddns/internal/web"
)

func main() {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/v1/ddns/usages", createUsage)
	mux.HandleFunc("GET /api/v1/ddns/check-prefix", checkPrefix)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, map[string]string{"message": "ok"}) })
	if err := http.ListenAndServe(os.Args[1], mux); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func createUsage(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, web.MaxBody)
	var body struct {
		ServiceID    string  `json:"service_id"`
		PrefixMode   string  `json:"prefix_mode"`
		CustomPrefix string  `json:"custom_prefix"`
		NetworkID    *uint64 `json:"network_id"`
		NetworkName  string  `json:"network_name"`
	}
	if err := web.Decode(r, &body); err != nil || body.NetworkID == nil {
		http.Error(w, fmt.Sprint("not a reservation: ", err), http.StatusBadRequest)
		return
	}
	type reserved struct {
		ID         string `json:"id"`
		ProviderID string `json:"provider_id"`
		Mode       string `json:"prefix_mode"`
		Prefix     string `json:"record_prefix"`
		FullDomain string `json:"full_domain"`
		NetworkID  uint64 `json:"network_id"`
	}
	answer(w, struct {
		Message string   `json:"message"`
		Data    reserved `json:"data"`
	}{"the prefix is reserved", reserved{
		ID: "01936f1e-5c3b-7d4a-8e2f-0123456789ab", ProviderID: body.ServiceID, Mode: body.PrefixMode,
		Prefix: body.CustomPrefix, FullDomain: "_mesh." + body.CustomPrefix + ".example.com", NetworkID: *body.NetworkID,
	}})
}

func checkPrefix(w http.ResponseWriter, r *http.Request) {
	query, err := web.ParseQuery(r)
	if err != nil || query.Get("service_id") == "" || query.Get("prefix") == "" {
		http.Error(w, fmt.Sprint("not a question: ", err), http.StatusBadRequest)
		return
	}
	send(w, []byte(`{"data":{"count":1,"occupied":true}}`+"\n"))
}

func answer(w http.ResponseWriter, body any) {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(body); err != nil {
		panic(err)
	}
	send(w, buffer.Bytes())
}

func send(w http.ResponseWriter, body []byte) {
	w.Header().Set("Content-Type", web.MediaType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.Write(body)
}
