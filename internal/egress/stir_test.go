package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/egress/egresstest"
	"github.com/cofferdam/cofferdam/internal/egress/names"
	"github.com/cofferdam/cofferdam/internal/egress/record"
)

// switchboard carries frames between the sandbox's end and one of several
// gateways' ends: one that is switched away from is as dead as a killed one.
type switchboard struct {
	inside  *os.File
	current atomic.Pointer[os.File]
}

// gateway makes the end of one more gateway and switches to it.
func (s *switchboard) gateway(t *testing.T) *os.File {
	t.Helper()
	device, middle := egresstest.Pair(t)
	s.current.Store(middle)
	go func() {
		frame := make([]byte, 1<<17)
		for {
			n, err := middle.Read(frame)
			if err != nil {
				return
			}
			if s.current.Load() == middle {
				_, _ = s.inside.Write(frame[:n])
			}
		}
	}()
	device, err := duplicate(device)
	if err != nil {
		t.Fatal(err)
	}
	return device
}

func newSwitchboard(t *testing.T) (*switchboard, *egresstest.Client) {
	t.Helper()
	middle, inside := egresstest.Pair(t)
	s := &switchboard{inside: middle}
	go func() {
		frame := make([]byte, 1<<17)
		for {
			n, err := middle.Read(frame)
			if err != nil {
				return
			}
			if to := s.current.Load(); to != nil {
				_, _ = to.Write(frame[:n])
			}
		}
	}()
	return s, egresstest.NewClient(t, inside)
}

// A program that only waits for an answer learns that the gateway was killed
// under its connection: the next gateway ends what the one before it left.
func TestConnectionsOfAKilledGatewayEnd(t *testing.T) {
	server := httpHolding(t)
	board, client := newSwitchboard(t)
	var mu sync.Mutex
	var stored []names.Entry
	start := func(records string) {
		r := newRig(t, nil, func(o *Options) {
			o.Records = records
			o.Stored = func(_ context.Context, _ string, e names.Entry) error {
				mu.Lock()
				defer mu.Unlock()
				stored = append(stored, e)
				return nil
			}
		})
		r.gateway.Detach(testID) // the rig's own device is not asked
		mu.Lock()
		handed := slices.Clone(stored)
		mu.Unlock()
		if _, _, err := r.gateway.Attach(Handed{Sandbox: testID, Device: board.gateway(t), Names: handed, Grant: grantOf(private("ok.test", server.port))}); err != nil {
			t.Fatal(err)
		}
	}
	records := t.TempDir()
	start(records)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var waiting []net.Conn
	for i, network := range []string{"tcp4", "tcp6"} {
		c, err := client.DialName(ctx, network, "ok.test", server.port)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: ok.test:%d\r\n\r\n", server.port); err != nil {
			t.Fatal(err)
		}
		for server.bytes.Load() < int64(i+1)*20 { // the request is there
			select {
			case <-ctx.Done():
				t.Fatal("the server saw no request")
			case <-time.After(time.Millisecond):
			}
		}
		waiting = append(waiting, c)
	}
	// As a kill leaves it: nothing is told to anybody, and no end is on record.
	board.current.Store(nil)
	left := t.TempDir()
	text, err := os.ReadFile(record.Path(records, testID))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(record.Path(left, testID), text, 0o600); err != nil {
		t.Fatal(err)
	}
	start(left)
	for _, c := range waiting {
		if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) || !strings.Contains(err.Error(), "reset") {
			t.Errorf("the client that waits reads: %v", err)
		}
	}
}

// httpHolding takes requests and answers none.
func httpHolding(t *testing.T) *upstream {
	u := listen(t)
	hold := make(chan struct{})
	t.Cleanup(func() { close(hold) })
	go func() {
		for {
			c, err := u.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = c.Read(make([]byte, 4096))
				<-hold
			}()
		}
	}()
	return u
}
