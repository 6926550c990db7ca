// Package service is the gateway's side of the conversation with its worker: it
// takes sandboxes over the handover's wire and gives them to the gateway.
package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/cofferdam/cofferdam/internal/egress"
	"github.com/cofferdam/cofferdam/internal/egress/handover"
	"github.com/cofferdam/cofferdam/internal/egress/names"
	"github.com/cofferdam/cofferdam/internal/task"
)

const helloWait = 10 * time.Second

// Service is the gateway's side of the conversation with its worker. The
// worker that said hello last is the one that counts.
type Service struct {
	epoch string
	users []uint32 // that may be the worker
	log   *slog.Logger

	mu      sync.Mutex
	worker  *handover.Peer
	changed chan struct{} // closed and replaced when worker changes
}

// New makes a service. Only processes of the given users are heard.
func New(epoch string, users []uint32, log *slog.Logger) *Service {
	return &Service{epoch: epoch, users: users, log: log, changed: make(chan struct{})}
}

// Serve takes workers' connections until ctx ends. It closes the listener.
func (s *Service) Serve(ctx context.Context, l *net.UnixListener, g *egress.Gateway) error {
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("gateway socket: %w", err)
		}
		go s.converse(ctx, conn, g)
	}
}

func (s *Service) converse(ctx context.Context, conn *net.UnixConn, g *egress.Gateway) {
	uid, err := handover.PeerUID(conn)
	if err != nil || !slices.Contains(s.users, uid) {
		s.log.Warn("refused a connection to the gateway's socket", "uid", uid, "error", err)
		conn.Close()
		return
	}
	t := &talk{service: s, gateway: g}
	t.peer = handover.NewPeer(conn, t.handle)
	silent := time.AfterFunc(helloWait, func() {
		if !t.hasGreeted() {
			t.peer.Close()
		}
	})
	defer silent.Stop()
	err = t.peer.Run(ctx)
	s.log.Info("worker gone", "error", err)
	s.mu.Lock()
	if s.worker == t.peer {
		s.set(nil)
	}
	s.mu.Unlock()
}

// set makes p the worker that counts. The lock is held.
func (s *Service) set(p *handover.Peer) {
	s.worker = p
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Service) current() (*handover.Peer, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.worker, s.changed
}

// Stored has the worker store a name, waiting for a worker as long as ctx
// lasts. It is made for Options.Stored.
func (s *Service) Stored(ctx context.Context, sandbox string, e names.Entry) error {
	for {
		worker, changed := s.current()
		if worker != nil {
			_, err := worker.Call(ctx, handover.KindName, handover.Name{Sandbox: sandbox, Entry: e}, nil, nil)
			if !errors.Is(err, handover.ErrGone) {
				return err
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("no worker: %w", ctx.Err())
		}
	}
}

// Broken tells the worker. It is made for Options.Broken.
func (s *Service) Broken(sandbox string) {
	worker, _ := s.current()
	if worker == nil {
		return // its hello will find out
	}
	ctx, cancel := context.WithTimeout(context.Background(), helloWait)
	defer cancel()
	if _, err := worker.Call(ctx, handover.KindBroken, handover.Sandbox{Sandbox: sandbox}, nil, nil); err != nil {
		s.log.Warn("worker not told", "sandbox", sandbox, "error", err)
	}
}

// talk is one worker's conversation.
type talk struct {
	service *Service
	gateway *egress.Gateway
	peer    *handover.Peer

	mu      sync.Mutex
	greeted bool
}

func (t *talk) hasGreeted() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.greeted
}

func (t *talk) handle(ctx context.Context, r handover.Request) (any, *os.File, error) {
	file := r.File
	defer func() {
		if file != nil {
			file.Close()
		}
	}()
	if r.Kind != handover.KindHello && !t.hasGreeted() {
		return nil, nil, invalid("say hello first")
	}
	if (r.Kind == handover.KindAttach) != (file != nil) {
		return nil, nil, invalid("a descriptor goes with attach and only with it")
	}
	switch r.Kind {
	case handover.KindHello:
		body, err := t.hello(r)
		return body, nil, err
	case handover.KindAttach:
		device := file
		file = nil
		body, err := t.attach(r, device)
		return body, nil, err
	case handover.KindGrant:
		var g handover.Grant
		if err := handover.Decode(r.Body, &g); err != nil || !handover.ValidID(g.Grant.Sandbox) {
			return nil, nil, invalid("grant")
		}
		prove := g.Grant.Prove
		g.Grant.Prove = false // it is no part of what the sandbox may reach
		err := t.gateway.SetGrant(g.Grant)
		if err == nil && prove {
			err = t.gateway.Prove(ctx, g.Grant.Sandbox)
		}
		return handover.Nothing{}, nil, err
	case handover.KindDetach, handover.KindDevice:
		var b handover.Sandbox
		if err := handover.Decode(r.Body, &b); err != nil || !handover.ValidID(b.Sandbox) {
			return nil, nil, invalid("sandbox")
		}
		if r.Kind == handover.KindDetach {
			t.gateway.Detach(b.Sandbox)
			return handover.Nothing{}, nil, nil
		}
		device, err := t.gateway.Device(b.Sandbox)
		return handover.Nothing{}, device, err
	}
	return nil, nil, invalid("kind of request")
}

func invalid(what string) error {
	return &task.Failure{Reason: task.InputInvalid, Text: "handover: " + what}
}

func (t *talk) hello(r handover.Request) (any, error) {
	var h handover.Hello
	if err := handover.Decode(r.Body, &h); err != nil || h.Version != handover.Version {
		return nil, invalid("hello")
	}
	t.mu.Lock()
	again := t.greeted
	t.greeted = true
	t.mu.Unlock()
	if again {
		return nil, invalid("hello came before")
	}
	s := t.service
	s.mu.Lock()
	old := s.worker
	s.set(t.peer)
	s.mu.Unlock()
	if old != nil {
		old.Close()
	}
	kept := t.gateway.Keep(h.Sandboxes)
	s.log.Info("worker here", "sandboxes", len(h.Sandboxes), "attached", len(kept))
	return handover.Welcome{Epoch: s.epoch, Attached: kept}, nil
}

func (t *talk) attach(r handover.Request, device *os.File) (any, error) {
	var a handover.Attach
	if err := handover.Decode(r.Body, &a); err != nil || !handover.ValidID(a.Sandbox) || a.Grant.Sandbox != a.Sandbox {
		device.Close()
		return nil, invalid("attach")
	}
	pem, sealed, err := t.gateway.Attach(egress.Handed{
		Sandbox: a.Sandbox, Device: device, Names: a.Names, Sealed: a.Sealed, Grant: a.Grant,
		MaxNames: a.MaxNames, MaxConnections: a.MaxConnections,
	})
	if err != nil {
		t.service.log.Error("attach", "sandbox", a.Sandbox, "error", err)
		return nil, err
	}
	return handover.Attached{PEM: pem, Sealed: sealed}, nil
}
