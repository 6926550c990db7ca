package strict

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"testing"
	"time"
)

// A client that ends its side after its request still gets the answer, and one
// that is gone is given up when nothing was written to it for the grace.
func TestHalfClosed(t *testing.T) {
	for _, c := range []struct {
		name   string
		grace  time.Duration
		answer bool // comes before the grace is over
		status int
	}{
		{"waits", time.Hour, true, 200},
		{"is gone", 50 * time.Millisecond, false, 499},
		{"is not waited for", 0, false, 499},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan struct{}) // the client ended its side
			server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				<-ended
				if !c.answer {
					<-r.Context().Done()
				}
				if r.Context().Err() != nil {
					w.WriteHeader(499)
				}
			})}
			defer server.Close()
			go func() { _ = server.Serve(&patient{l, c.grace}) }()
			conn, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			close(ended)
			r := bufio.NewReader(conn)
			res, err := http.ReadResponse(r, nil)
			if err != nil || res.StatusCode != c.status {
				t.Fatalf("%v, %v; want %d", res, err, c.status)
			}
			// Once it is answered, the end is an end.
			if _, err := r.ReadByte(); !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
				t.Errorf("after the answer: %v", err)
			}
		})
	}
}

// patient is a listener of connections as the gateway has them.
type patient struct {
	net.Listener
	grace time.Duration
}

func (p *patient) Accept() (net.Conn, error) {
	inner, err := p.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := New(inner)
	c.Patient(p.grace)
	return &answering{c}, nil
}

// answering tells of answers where the server is done with one.
type answering struct{ *Conn }

func (a *answering) Write(b []byte) (int, error) {
	n, err := a.Conn.Write(b)
	a.Answered()
	return n, err
}

// A read that waits ends with its deadline, with Close, and with an answer.
func TestEndsOfWaiting(t *testing.T) {
	for name, end := range map[string]struct {
		by   func(*Conn)
		want error
	}{
		"deadline": {func(c *Conn) { c.wakeAt(time.Unix(1, 0)) }, os.ErrDeadlineExceeded},
		"close":    {func(c *Conn) { _ = c.Close() }, io.EOF},
		"answer":   {func(c *Conn) { c.Answered() }, io.EOF},
	} {
		t.Run(name, func(t *testing.T) {
			c := New(&feed{data: []byte("GET / HTTP/1.1\r\n" + ok + "\r\n"), piece: 1 << 10, Conn: nowhere{}})
			c.Patient(time.Hour)
			b := make([]byte, 100)
			if n, err := c.Read(b); n == 0 || err != nil {
				t.Fatal(n, err)
			}
			got := make(chan error)
			go func() {
				_, err := c.Read(b)
				got <- err
			}()
			for waits := false; !waits; {
				c.mu.Lock()
				waits = c.half.wake != nil
				c.mu.Unlock()
				runtime.Gosched()
			}
			end.by(c)
			if err := <-got; !errors.Is(err, end.want) {
				t.Errorf("%v, want %v", err, end.want)
			}
		})
	}
}

// nowhere is a connection that can be closed.
type nowhere struct{ net.Conn }

func (nowhere) Close() error { return nil }
