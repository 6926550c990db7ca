package handover

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cofferdam/cofferdam/internal/task"
)

// ends gives the two ends of a connection.
func ends(t testing.TB) (a, b *net.UnixConn) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err = net.DialUnix("unix", nil, l.Addr().(*net.UnixAddr))
	if err != nil {
		t.Fatal(err)
	}
	b, err = l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

func TestDescriptorsCrossBothWays(t *testing.T) {
	a, b := ends(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	server := NewPeer(b, func(_ context.Context, q Request) (any, *os.File, error) {
		switch q.Kind {
		case KindAttach:
			defer q.File.Close()
			io.WriteString(q.File, "through the descriptor\n")
			return Attached{PEM: []byte("pem")}, nil, nil
		case KindDevice:
			second, err := os.Open("/dev/null")
			return Nothing{}, second, err
		}
		return nil, nil, &task.Failure{Reason: task.InputInvalid, Text: "no"}
	})
	client := NewPeer(a, nil)
	go server.Run(t.Context())
	go client.Run(t.Context())
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var attached Attached
	if _, err := client.Call(ctx, KindAttach, Attach{Sandbox: "sb-aaaaaaaaaaaaaaaa"}, w, &attached); err != nil || string(attached.PEM) != "pem" {
		t.Fatalf("%+v, %v", attached, err)
	}
	w.Close()
	if all, err := io.ReadAll(r); string(all) != "through the descriptor\n" {
		t.Errorf("%q, %v", all, err)
	}
	f, err := client.Call(ctx, KindDevice, Sandbox{}, nil, nil)
	if err != nil || f == nil {
		t.Fatalf("%v, %v", f, err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		t.Errorf("another file came: %v, %v", info, err)
	}
	_, err = client.Call(ctx, "unheard", Nothing{}, nil, nil)
	var failure *task.Failure
	if !errors.As(err, &failure) || failure.Reason != task.InputInvalid {
		t.Errorf("%v", err)
	}
	server.Close()
	<-client.Gone()
	if _, err := client.Call(ctx, KindDevice, Sandbox{}, nil, nil); !errors.Is(err, ErrGone) {
		t.Errorf("after the end: %v", err)
	}
}

func TestCallsWhenTheOtherSideDies(t *testing.T) {
	a, b := ends(t)
	begun := make(chan struct{})
	server := NewPeer(b, func(ctx context.Context, _ Request) (any, *os.File, error) {
		close(begun)
		<-ctx.Done()
		return nil, nil, ctx.Err()
	})
	client := NewPeer(a, nil)
	go server.Run(t.Context())
	go client.Run(t.Context())
	go func() { <-begun; b.Close() }()
	if _, err := client.Call(t.Context(), KindGrant, Nothing{}, nil, nil); !errors.Is(err, ErrGone) {
		t.Errorf("%v, want ErrGone", err)
	}
}

func header(length, fds int, version byte) []byte {
	h := binary.BigEndian.AppendUint32(nil, uint32(length))
	return append(h, byte(fds), version, 0, 0)
}

func TestBadFrames(t *testing.T) {
	good := []byte(`{"id":1,"kind":"hello"}`)
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	fd := int(null.Fd())
	for what, c := range map[string]struct {
		data   []byte
		rights []int
	}{
		"huge":                {data: header(frameMax+1, 0, Version)},
		"version":             {data: append(header(len(good), 0, 9), good...)},
		"descriptor promised": {data: append(header(len(good), 1, Version), good...)},
		"descriptor hidden":   {data: append(header(len(good), 0, Version), good...), rights: []int{fd}},
		"two descriptors":     {data: append(header(len(good), 2, Version), good...), rights: []int{fd, fd}},
		"many descriptors":    {data: append(header(len(good), 1, Version), good...), rights: []int{fd, fd, fd, fd, fd, fd, fd, fd}},
		"cut":                 {data: append(header(len(good)+5, 0, Version), good...)},
	} {
		before := openFiles(t)
		a, b := ends(t)
		var oob []byte
		if c.rights != nil {
			oob = unix.UnixRights(c.rights...)
		}
		if _, _, err := a.WriteMsgUnix(c.data, oob, nil); err != nil {
			t.Fatal(err)
		}
		a.Close()
		if body, f, err := readFrame(b); err == nil {
			t.Errorf("%s: %q, %v", what, body, f)
		}
		b.Close()
		if after := openFiles(t); after > before {
			t.Errorf("%s: %d descriptors leaked", what, after-before)
		}
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

func TestBadMessages(t *testing.T) {
	for _, s := range []string{
		"", "null", "{}", `{"id":0,"kind":"hello"}`, `{"id":1}`, `{"id":1,"reply":true,"kind":"x"}`, `{"id":1,"kind":"x","failure":{"reason":"a","text":""}}`,
		`{"id":1,"reply":true,"failure":{"reason":"","text":""}}`, `{"id":1,"kind":"x","more":1}`, `{"id":1,"kind":"x"}{}`, `{"id":-1,"kind":"x"}`, strings.Repeat("[", 100_000),
	} {
		if m, err := parse([]byte(s)); !errors.Is(err, ErrMessage) {
			t.Errorf("%.40q: %+v, %v", s, m, err)
		}
	}
}

func FuzzReadFrame(f *testing.F) {
	body, _ := json.Marshal(message{ID: 1, Kind: KindHello, Body: json.RawMessage(`{"version":1,"sandboxes":[]}`)})
	f.Add(append(header(len(body), 0, Version), body...))
	f.Add(header(frameMax, 1, Version))
	f.Fuzz(func(t *testing.T, data []byte) {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Skip(err)
		}
		unix.SetsockoptInt(fds[0], unix.SOL_SOCKET, unix.SO_SNDBUF, 1<<20)
		out, in := os.NewFile(uintptr(fds[0]), "a"), os.NewFile(uintptr(fds[1]), "b")
		defer in.Close()
		out.Write(data[:min(len(data), 1<<18)])
		out.Close()
		c, err := net.FileConn(in)
		if err != nil {
			t.Skip(err)
		}
		defer c.Close()
		for {
			body, file, err := readFrame(c.(*net.UnixConn))
			if err != nil {
				return
			}
			if file != nil {
				t.Fatal("a descriptor out of nothing")
			}
			m, err := parse(body)
			if err != nil {
				return
			}
			// What is accepted is read the same again.
			again, err := json.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			second, err := parse(again)
			if err != nil || second.ID != m.ID || second.Kind != m.Kind || !same(second.Body, m.Body) {
				t.Fatalf("%+v became %+v, %v", m, second, err)
			}
		}
	})
}

// same compares as values: json.Marshal writes some characters another way.
func same(a, b []byte) bool {
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return bytes.Equal(a, b)
	}
	return reflect.DeepEqual(x, y)
}
