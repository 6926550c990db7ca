package strict

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// feed is a connection that gives bytes in pieces and then ends.
type feed struct {
	net.Conn
	data  []byte
	piece int
}

func (f *feed) Read(b []byte) (int, error) {
	if len(f.data) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), f.piece)], f.data)
	f.data = f.data[n:]
	return n, nil
}

const ok = "Host: a.test\r\n"

func TestWhatPassesIsWhatCame(t *testing.T) {
	for _, text := range []string{
		"GET / HTTP/1.1\r\n" + ok + "\r\n",
		"GET /a%20b?c HTTP/1.1\r\nX:\r\nY: \xc3\xa4\r\n" + ok + "\r\nGET * HTTP/1.0\r\n\r\n",
		"POST / HTTP/1.1\r\n" + ok + "Content-Length: 5\r\n\r\nhelloGET / HTTP/1.1\r\n" + ok + "\r\n",
		"POST / HTTP/1.1\r\n" + ok + "Transfer-Encoding: Chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\nT: u\r\n\r\nGET / HTTP/1.1\r\n" + ok + "\r\n",
		"PUT / HTTP/1.1\r\n" + ok + "Content-Length: 70000\r\n\r\n" + strings.Repeat("x", 70000) + "GET / HTTP/1.1\r\n" + ok + "\r\n",
		"GET http://a.test/ HTTP/1.1\r\n" + ok + "\r\n",
	} {
		for _, piece := range []int{1, 7, 1 << 20} {
			c := New(&feed{data: []byte(text), piece: piece})
			got, err := io.ReadAll(c)
			if string(got) != text || err != nil || c.Refused(100) != "" {
				t.Errorf("%.60q in pieces of %d: %.60q, %v, refused: %q", text, piece, got, err, c.Refused(100))
			}
		}
	}
}

// A long head that comes a byte at a time is looked at once, not each time.
func TestLongHeadInSmallPieces(t *testing.T) {
	text := "GET / HTTP/1.1\r\n" + ok + strings.Repeat("X: "+strings.Repeat("y", 1000)+"\r\n", 250) + "\r\n"
	for _, piece := range []int{1, 2, 3, 5} {
		c := New(&feed{data: []byte(text + text), piece: piece})
		if got, err := io.ReadAll(c); string(got) != text+text || err != nil || c.Refused(3) != "" {
			t.Errorf("in pieces of %d: %d bytes of %d, %v, %q", piece, len(got), 2*len(text), err, c.Refused(3))
		}
	}
}

func TestRefusedInItsTurn(t *testing.T) {
	good := "GET /1 HTTP/1.1\r\n" + ok + "\r\n"
	for _, bad := range []string{
		"GET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\n" + ok + ok + "\r\n", "GET / HTTP/1.1\n" + ok + "\r\n\r\n",
		"GET / HTTP/1.1\r\n" + ok + " folded\r\n\r\n", "GET / HTTP/1.1\r\n" + ok + "A : b\r\n\r\n", "GET / HTTP/1.1\r\n" + ok + "no colon\r\n\r\n",
		"GET\t/ HTTP/1.1\r\n" + ok + "\r\n", "GET / HTTP/1.1 \r\n" + ok + "\r\n", "GET / HTTP/2.0\r\n" + ok + "\r\n", "GET / http/1.1\r\n" + ok + "\r\n",
		"GET http://b.test/ HTTP/1.1\r\n" + ok + "\r\n", "GET /\x7f HTTP/1.1\r\n" + ok + "\r\n",
		"POST / HTTP/1.1\r\n" + ok + "Content-Length: 1\r\nContent-Length: 1\r\n\r\nx", "POST / HTTP/1.1\r\n" + ok + "Content-Length: 0x1\r\n\r\nx",
		"POST / HTTP/1.1\r\n" + ok + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "POST / HTTP/1.1\r\n" + ok + "Content-Length:\r\n\r\n", "POST / HTTP/1.1\r\n" + ok + "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
		"GET / HTTP/1.1\r\n" + ok + "X: " + strings.Repeat("y", headMax) + "\r\n\r\n", strings.Repeat("\r\n", 20) + good,
	} {
		c := New(&feed{data: []byte(good + bad + good), piece: 1000})
		got, err := io.ReadAll(c)
		if string(got) != good+harmless || err != nil || c.Refused(1) != "" || c.Refused(2) == "" || c.Refused(3) == "" {
			t.Errorf("%.80q: passed %.200q, %v, %q, %q", bad, got, err, c.Refused(1), c.Refused(2))
		}
	}
}

func TestMalformedChunksCutTheBody(t *testing.T) {
	for _, body := range []string{
		"3\nabc\r\n0\r\n\r\n", "3\r\nabcd\r\n0\r\n\r\n", "+3\r\nabc\r\n0\r\n\r\n", "\r\n\r\n", "3 \r\nabc\r\n0\r\n\r\n",
		"0\r\nContent-Length: 3\r\n\r\nabc", "0\r\nHost: b.test\r\n\r\n", "0\r\n folded: x\r\n\r\n", "ffffffffffffffff\r\n", "3;\x00\r\nabc\r\n0\r\n\r\n",
	} {
		c := New(&feed{data: []byte("POST / HTTP/1.1\r\n" + ok + "Transfer-Encoding: chunked\r\n\r\n" + body + "GET /2 HTTP/1.1\r\n" + ok + "\r\n"), piece: 1000})
		got, err := io.ReadAll(c)
		if !errors.Is(err, io.ErrUnexpectedEOF) || strings.Contains(string(got), "/2") {
			t.Errorf("%q: %v, %q", body, err, got)
		}
	}
}

func TestOpenedPassesAnything(t *testing.T) {
	head := "GET / HTTP/1.1\r\n" + ok + "\r\n"
	f := &feed{data: []byte(head), piece: 1000}
	c := New(f)
	if got, err := io.ReadAll(c); string(got) != head || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	c.Open()
	f.data = []byte("\x00\n anything")
	if got, err := io.ReadAll(c); string(got) != "\x00\n anything" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// asServerReads divides bytes into requests as Go's server does.
func asServerReads(t *testing.T, data []byte) []string {
	var out []string
	in := bufio.NewReader(bytes.NewReader(data))
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return out
		}
		body, err := io.ReadAll(r.Body)
		out = append(out, fmt.Sprintf("%s %s %s %q", r.Method, r.Host, r.RequestURI, body))
		if err != nil {
			return out
		}
	}
}

// Whatever comes in: what passes is a beginning of it without empty lines, but
// for the harmless head at its end; it is divided into the same requests however
// it was cut into pieces; and each has one host.
func FuzzRequests(f *testing.F) {
	for _, s := range []string{
		"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n", "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nabGET / HTTP/1.0\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\n X: y\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n",
	} {
		f.Add([]byte(s), uint8(3))
	}
	f.Fuzz(func(t *testing.T, data []byte, piece uint8) {
		whole := New(&feed{data: slices.Clone(data), piece: 1 << 20})
		a, _ := io.ReadAll(whole)
		b, _ := io.ReadAll(New(&feed{data: slices.Clone(data), piece: int(piece) + 1}))
		if whole.Refused(1<<40) == "" && !bytes.HasPrefix(a, b) && !bytes.HasPrefix(b, a) {
			t.Fatalf("in pieces %q, whole %q", b, a)
		}
		passed := bytes.TrimSuffix(a, []byte(harmless))
		for i, r := range asServerReads(t, passed) {
			if whole.Refused(int64(i)+1) != "" {
				t.Fatalf("request %d was refused and passed: %s", i+1, r)
			}
		}
		if whole.Refused(1<<40) != "" {
			return
		}
		// A second screen finds nothing wrong with what the first let through.
		again := New(&feed{data: slices.Clone(a), piece: 1 << 20})
		if c, _ := io.ReadAll(again); !bytes.Equal(a, c) || again.Refused(1<<40) != "" {
			t.Fatalf("again: %q, then %q (%s)", a, c, again.Refused(1<<40))
		}
	})
}
