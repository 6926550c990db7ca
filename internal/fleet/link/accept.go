package link

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"
)

// Protocol is the name in the Upgrade header.
const Protocol = "cofferdam-worker/1"

// ConnectPath is where a worker connects.
const ConnectPath = "/v1/worker/connect"

// Accept turns a worker's request into a session. When it fails, the answer has
// been written. Authentication is the caller's, before this.
func Accept(w http.ResponseWriter, r *http.Request, t Tuning, log *slog.Logger) (*Session, error) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "connect with POST", http.StatusMethodNotAllowed)
		return nil, fmt.Errorf("method %s: %w", r.Method, ErrProtocol)
	}
	if r.ProtoMajor != 1 || !strings.EqualFold(r.Header.Get("Upgrade"), Protocol) || !hasToken(r.Header.Values("Connection"), "upgrade") {
		w.Header().Set("Upgrade", Protocol)
		w.Header().Set("Connection", "Upgrade")
		http.Error(w, "this address is for workers: upgrade to "+Protocol, http.StatusUpgradeRequired)
		return nil, fmt.Errorf("upgrade %q: %w", r.Header.Get("Upgrade"), ErrProtocol)
	}
	conn, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, "this connection can't be upgraded", http.StatusInternalServerError)
		return nil, fmt.Errorf("upgrade: %w", err)
	}
	conn.SetDeadline(time.Now().Add(t.withDefaults().Timeout))
	answer := "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + Protocol + "\r\n\r\n"
	if _, err := conn.Write([]byte(answer)); err != nil {
		conn.Close()
		return nil, fmt.Errorf("upgrade: %w", err)
	}
	conn.SetDeadline(time.Time{})
	s, err := control(&bufferedConn{conn, buf.Reader}, t, log)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return s, nil
}

func hasToken(values []string, token string) bool {
	for _, v := range values {
		for part := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.TrimSpace(part), token) {
				return true
			}
		}
	}
	return false
}
