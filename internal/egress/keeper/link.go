package keeper

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/cofferdam/cofferdam/internal/egress/handover"
	"github.com/cofferdam/cofferdam/internal/task"
)

const (
	pauseFirst = 20 * time.Millisecond // between attempts to reach a gateway
	pauseMost  = 500 * time.Millisecond
	stepWait   = 10 * time.Second // for one sandbox to be handed over
	atOnce     = 8                // sandboxes being handed over
	epochWait  = time.Second

	// A device whose end in the gateway breaks is handed over again so often
	// within that time, and then left alone: its frames may be what breaks it.
	triesMost   = 3
	triesWithin = time.Minute
)

// link is a connection to a gateway that has said welcome.
type link struct {
	peer     *handover.Peer
	epoch    string
	attached []string // what the gateway had at the welcome
}

// Run keeps a link to the gateway, making a new one for ever, until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	pause := pauseFirst
	for ctx.Err() == nil {
		l, err := k.connect(ctx)
		if err != nil {
			k.options.Log.Debug("gateway", "error", err)
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
			pause = min(2*pause, pauseMost)
			continue
		}
		pause = pauseFirst
		k.options.Log.Info("gateway here", "epoch", l.epoch, "attached", len(l.attached))
		k.allInStep(ctx, l)
		select {
		case <-l.peer.Gone():
		case <-ctx.Done():
			l.peer.Close()
		}
		k.setLink(nil)
		k.options.Log.Info("gateway gone", "epoch", l.epoch)
	}
	k.close()
	return nil
}

func (k *Keeper) connect(ctx context.Context) (*link, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", k.options.Socket)
	if err != nil {
		return nil, err
	}
	l := &link{}
	l.peer = handover.NewPeer(conn.(*net.UnixConn), func(ctx context.Context, r handover.Request) (any, *os.File, error) {
		return k.handle(ctx, l, r)
	})
	go func(ctx context.Context) { _ = l.peer.Run(ctx) }(ctx) // how it ends is told by its calls
	ctx, cancel := context.WithTimeout(ctx, stepWait)
	defer cancel()
	var welcome handover.Welcome
	// What is kept is listed and the link is set in one step: a sandbox that is
	// forgotten in between would stay attached.
	k.mu.Lock()
	ids := make([]string, 0, len(k.kept))
	for id := range k.kept {
		ids = append(ids, id)
	}
	k.mu.Unlock()
	if _, err := l.peer.Call(ctx, handover.KindHello, handover.Hello{Version: handover.Version, Sandboxes: ids}, nil, &welcome); err != nil {
		l.peer.Close()
		return nil, err
	}
	l.epoch, l.attached = welcome.Epoch, welcome.Attached
	k.setLink(l)
	for _, id := range welcome.Attached {
		k.mu.Lock()
		s := k.kept[id]
		k.mu.Unlock()
		if s == nil { // forgotten while hello was under way
			_, _ = l.peer.Call(ctx, handover.KindDetach, handover.Sandbox{Sandbox: id}, nil, nil)
		}
	}
	return l, nil
}

func (k *Keeper) setLink(l *link) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.link = l
	close(k.changed)
	k.changed = make(chan struct{})
}

// close lets the files go when the worker ends. The gateway and the sandboxes
// go on.
func (k *Keeper) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range k.kept {
		s.mu.Lock()
		s.journal.close()
		if s.device != nil {
			s.device.Close()
			s.device = nil
		}
		s.mu.Unlock()
	}
}

// allInStep hands every kept sandbox over.
func (k *Keeper) allInStep(ctx context.Context, l *link) {
	k.mu.Lock()
	all := make([]*kept, 0, len(k.kept))
	for _, s := range k.kept {
		all = append(all, s)
	}
	k.mu.Unlock()
	slots := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for _, s := range all {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			k.inStep(ctx, l, s)
		})
	}
	wg.Wait()
}

// inStep hands one sandbox over. It tries for a while: the device may still be
// held by the gateway that is just ending.
func (k *Keeper) inStep(ctx context.Context, l *link, s *kept) {
	ctx, cancel := context.WithTimeout(ctx, stepWait)
	defer cancel()
	for {
		s.mu.Lock()
		err := k.handOver(ctx, l, s)
		gone := s.gone
		s.mu.Unlock()
		if err == nil || gone || errors.Is(err, handover.ErrGone) {
			return
		}
		k.options.Log.Error("sandbox not handed over", "sandbox", s.id, "error", err)
		select {
		case <-time.After(pauseMost):
		case <-l.peer.Gone():
			return
		case <-ctx.Done():
			return
		}
	}
}

// handOver brings the gateway of the link in step with what is kept. The
// sandbox's lock is held.
func (k *Keeper) handOver(ctx context.Context, l *link, s *kept) error {
	if s.inStep == l {
		return nil
	}
	if s.gone {
		return unknown(s.id)
	}
	if slices.Contains(l.attached, s.id) && (s.handed || s.device == nil) {
		if done, err := k.adopt(ctx, l, s); done || errors.Is(err, handover.ErrGone) {
			return err
		}
	}
	if err := k.reopen(s); err != nil {
		return err
	}
	authority, grant, known := s.journal.state()
	var attached handover.Attached
	own := s.journal.bounds()
	request := handover.Attach{
		Sandbox: s.id, Names: known, Sealed: authority.Sealed, Grant: grant, MaxNames: own.Names, MaxConnections: own.Connections,
	}
	if _, err := l.peer.Call(ctx, handover.KindAttach, request, s.device, &attached); err != nil {
		return err
	}
	if string(attached.Sealed) != string(authority.Sealed) {
		if err := s.journal.append(line{Authority: &sealed{PEM: attached.PEM, Sealed: attached.Sealed}}); err != nil {
			return err
		}
	}
	s.inStep, s.handed = l, true
	return nil
}

// adopt goes on with a gateway that has the sandbox already: the worker was
// restarted, or only the connection broke.
func (k *Keeper) adopt(ctx context.Context, l *link, s *kept) (done bool, err error) {
	_, grant, _ := s.journal.state()
	if s.device == nil {
		device, err := l.peer.Call(ctx, handover.KindDevice, handover.Sandbox{Sandbox: s.id}, nil, nil)
		if err != nil || device == nil {
			return false, err
		}
		s.device = device
	}
	if _, err := l.peer.Call(ctx, handover.KindGrant, handover.Grant{Grant: grant}, nil, nil); err != nil {
		return false, err
	}
	s.inStep, s.handed = l, true
	return true, nil
}

// reopen opens the device again when nobody has it any more.
func (k *Keeper) reopen(s *kept) error {
	if s.device != nil {
		return nil
	}
	if k.options.Reopen == nil {
		return &task.Failure{Reason: task.InfraSandboxLost, Text: "the sandbox's network device is lost"}
	}
	device, err := k.options.Reopen(s.id)
	if err != nil {
		return &task.Failure{Reason: task.InfraSandboxLost, Text: "the sandbox's network device can't be opened again", Err: err}
	}
	defer device.Close()
	s.device, err = duplicate(int(device.Fd()))
	return err
}

// handle answers the gateway.
func (k *Keeper) handle(ctx context.Context, l *link, r handover.Request) (any, *os.File, error) {
	if r.File != nil {
		r.File.Close()
		return nil, nil, &task.Failure{Reason: task.InputInvalid, Text: "handover: no descriptor is taken here"}
	}
	switch r.Kind {
	case handover.KindName:
		var n handover.Name
		if err := handover.Decode(r.Body, &n); err != nil {
			return nil, nil, err
		}
		k.mu.Lock()
		s := k.kept[n.Sandbox]
		k.mu.Unlock()
		if s == nil {
			return nil, nil, unknown(n.Sandbox)
		}
		return handover.Nothing{}, nil, s.journal.addName(n.Entry)
	case handover.KindBroken:
		var b handover.Sandbox
		if err := handover.Decode(r.Body, &b); err != nil {
			return nil, nil, err
		}
		go k.mend(context.WithoutCancel(ctx), l, b.Sandbox)
		return handover.Nothing{}, nil, nil
	}
	return nil, nil, &task.Failure{Reason: task.InputInvalid, Text: fmt.Sprintf("handover: %q is not known here", r.Kind)}
}

// mend attaches a sandbox again whose end in the gateway broke.
func (k *Keeper) mend(ctx context.Context, l *link, id string) {
	ctx, cancel := context.WithTimeout(ctx, stepWait)
	defer cancel()
	k.mu.Lock()
	s := k.kept[id]
	k.mu.Unlock()
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone || s.inStep != l {
		return
	}
	s.inStep = nil
	now := time.Now()
	s.tries = slices.DeleteFunc(s.tries, func(t time.Time) bool { return now.Sub(t) > triesWithin })
	if len(s.tries) >= triesMost {
		k.options.Log.Error("the way out broke too often and stays closed", "sandbox", id)
		return
	}
	s.tries = append(s.tries, now)
	if err := k.handOver(ctx, l, s); err != nil {
		k.options.Log.Error("sandbox not attached again", "sandbox", id, "error", err)
	}
}

// retry does what needs a gateway, again when the gateway goes away meanwhile.
func (k *Keeper) retry(ctx context.Context, wait time.Duration, do func(context.Context, *link) error) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		l, err := k.wait(ctx)
		if err != nil {
			return away(err)
		}
		err = do(ctx, l)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, handover.ErrGone):
			select { // until the loop has seen it too
			case <-l.peer.Gone():
			case <-ctx.Done():
			}
			k.mu.Lock()
			if k.link == l {
				k.link = nil
			}
			k.mu.Unlock()
			continue
		case ctx.Err() != nil:
			return away(err)
		}
		if _, ok := errors.AsType[*task.Failure](err); ok {
			return err
		}
		return &task.Failure{Reason: task.InfraInternal, Text: "the gateway did not understand the worker", Err: err}
	}
}

// wait gives the link, waiting for one as long as ctx lasts.
func (k *Keeper) wait(ctx context.Context) (*link, error) {
	for {
		k.mu.Lock()
		l, changed := k.link, k.changed
		k.mu.Unlock()
		if l != nil {
			return l, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Epoch is the boot id of the gateway, or empty when none answers now. It
// waits a moment for one, so that a restart that is under way is seen as one.
func (k *Keeper) Epoch() string {
	ctx, cancel := context.WithTimeout(context.Background(), epochWait)
	defer cancel()
	l, err := k.wait(ctx)
	if err != nil {
		return ""
	}
	return l.epoch
}
