// Command modelserver stands for a model in the demo: it speaks the vendors'
// protocols over TLS and answers from a script, so that the demo needs no key and
// always does the same. It prints its address, writes the certificate of its
// authority to -roots, and logs a line for each request to -log: the path, the
// status, and whether the key was the one that -key names. Keys are not logged.
package main

import (
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/cofferdam/cofferdam/internal/agent/modeltest"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "modelserver:", err)
		os.Exit(1)
	}
}

// line is what is logged of a request.
type line struct {
	Time   time.Time `json:"time"`
	Path   string    `json:"path"`
	Status int       `json:"status"`
	Key    string    `json:"key"` // "the key", "another" or "none"
}

func run() error {
	script := flag.String("script", "", "`file` with a JSON list of steps")
	keyFile := flag.String("key", "", "`file` with the key that requests must carry")
	roots := flag.String("roots", "", "`file` to write the authority's certificate to")
	logFile := flag.String("log", "", "`file` to log requests to")
	flag.Parse()
	text, err := os.ReadFile(*script)
	if err != nil {
		return err
	}
	steps, err := modeltest.ParseScript([]byte("SCRIPT " + strings.TrimSpace(string(text))))
	if err != nil {
		return err
	}
	key, err := os.ReadFile(*keyFile)
	if err != nil {
		return err
	}
	want := strings.TrimSpace(string(key))
	certificate, authority, err := modeltest.Certificate("127.0.0.1", "localhost")
	if err != nil {
		return err
	}
	if err := os.WriteFile(*roots, authority, 0o644); err != nil {
		return err
	}
	log, err := os.OpenFile(*logFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	var mu sync.Mutex
	server := modeltest.New(modeltest.Options{Key: want, Steps: steps, Note: func(s modeltest.Seen) {
		l := line{Time: time.Now().UTC(), Path: s.Path, Status: s.Status, Key: "another"}
		switch s.Key {
		case want:
			l.Key = "the key"
		case "":
			l.Key = "none"
		}
		mu.Lock()
		defer mu.Unlock()
		_ = json.NewEncoder(log).Encode(l) // the demo goes on without
	}})
	fmt.Println("https://" + listener.Addr().String())
	return http.Serve(tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}), server)
}
