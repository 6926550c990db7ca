package keeper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cofferdam/cofferdam/internal/egress/handover"
	"github.com/cofferdam/cofferdam/internal/egress/record"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/task"
)

// proofWait is how much longer than others a grant may take whose leases are
// proved: values are lent and minted meanwhile.
const proofWait = 25 * time.Second

// Options make a keeper. All but Reopen and Wait are required.
type Options struct {
	Socket  string // of the gateway
	State   string // folder of the journals; made when absent
	Records string // folder of the gateway's decision logs
	Log     *slog.Logger
	// Reopen opens a sandbox's persistent device again, when neither the worker
	// nor the gateway has its descriptor any more.
	Reopen func(id string) (*os.File, error)
	// Wait is how long a call waits for a gateway that is away; 0 means 10 s.
	Wait time.Duration
}

// Keeper gives sandboxes to the gateway and keeps them there. Safe for
// concurrent use.
type Keeper struct {
	options Options

	mu      sync.Mutex
	kept    map[string]*kept
	link    *link
	changed chan struct{} // closed and replaced when link changes
}

var _ sandbox.Network = (*Keeper)(nil)

// kept is one sandbox.
type kept struct {
	id      string
	journal *journal

	mu     sync.Mutex // held while the gateway is asked about the sandbox
	device *os.File   // nil when it is not known any more
	handed bool       // a gateway took this very device
	inStep *link      // the link whose gateway has everything
	gone   bool
	tries  []time.Time // of attaching again after the gateway's end broke
}

// New loads what was kept before. Journals that can't be read are put aside
// and named in the log; their sandboxes have no network any more.
func New(o Options) (*Keeper, error) {
	if o.Socket == "" || o.State == "" || o.Records == "" || o.Log == nil {
		return nil, errors.New("keeper: an option is missing")
	}
	if o.Wait <= 0 {
		o.Wait = 10 * time.Second
	}
	if err := os.MkdirAll(o.State, 0o700); err != nil {
		return nil, fmt.Errorf("keeper: %w", err)
	}
	ids, err := journals(o.State)
	if err != nil {
		return nil, fmt.Errorf("keeper: %w", err)
	}
	k := &Keeper{options: o, kept: make(map[string]*kept), changed: make(chan struct{})}
	for _, id := range ids {
		j, err := loadJournal(o.State, id)
		if err != nil {
			o.Log.Error("a sandbox lost its way out", "sandbox", id, "error", err)
			if !errors.Is(err, errCorrupt) {
				return nil, fmt.Errorf("keeper: %w", err)
			}
			if err := os.Rename(journalPath(o.State, id), journalPath(o.State, id)+".corrupt"); err != nil {
				return nil, fmt.Errorf("keeper: %w", err)
			}
			continue
		}
		k.kept[id] = &kept{id: id, journal: j}
	}
	return k, nil
}

// Attach implements sandbox.Network. A sandbox that is kept already gets the
// new device; its names, authority and grant stay.
func (k *Keeper) Attach(ctx context.Context, id string, tap sandbox.Device) ([]byte, error) {
	if !handover.ValidID(id) {
		return nil, &task.Failure{Reason: task.InputInvalid, Text: fmt.Sprintf("sandbox id %q is not valid", id)}
	}
	device, err := duplicate(int(tap.File.Fd()))
	if err != nil {
		return nil, &task.Failure{Reason: task.InfraSandboxCreate, Text: "the sandbox's network device can't be used", Err: err}
	}
	s, fresh, err := k.enter(id)
	if err != nil {
		device.Close()
		return nil, &task.Failure{Reason: task.InfraStorage, Text: "the state of the sandbox's network can't be stored", Err: err}
	}
	if own := (limits{Names: tap.MaxNames, Connections: tap.MaxConnections}); own != s.journal.bounds() {
		if err := s.journal.append(line{Limits: &own}); err != nil {
			device.Close()
			return nil, &task.Failure{Reason: task.InfraStorage, Text: "the limits of the sandbox's network can't be stored", Err: err}
		}
	}
	s.mu.Lock()
	old := s.device
	s.device, s.handed, s.inStep = device, false, nil
	if old != nil {
		old.Close()
	}
	err = k.retry(ctx, k.options.Wait, func(ctx context.Context, l *link) error { return k.handOver(ctx, l, s) })
	s.mu.Unlock()
	if err != nil {
		if fresh {
			err = errors.Join(err, k.Detach(context.WithoutCancel(ctx), id))
		}
		return nil, err
	}
	authority, _, _ := s.journal.state()
	return authority.PEM, nil
}

// enter finds or makes what is kept for a sandbox.
func (k *Keeper) enter(id string) (s *kept, fresh bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if s := k.kept[id]; s != nil {
		return s, false, nil
	}
	j, err := newJournal(k.options.State, id)
	if err != nil {
		return nil, false, err
	}
	s = &kept{id: id, journal: j}
	k.kept[id] = s
	return s, true, nil
}

// Detach implements sandbox.Network. With the gateway away it is enough to
// forget the sandbox: the next hello leaves it out, and the gateway drops it.
func (k *Keeper) Detach(ctx context.Context, id string) error {
	k.mu.Lock()
	s := k.kept[id]
	delete(k.kept, id)
	l := k.link
	k.mu.Unlock()
	if s != nil {
		s.mu.Lock()
		s.gone = true
		if s.device != nil {
			s.device.Close()
			s.device = nil
		}
		err := s.journal.remove()
		s.mu.Unlock()
		if err != nil {
			return &task.Failure{Reason: task.InfraStorage, Text: "the state of the sandbox's network can't be removed", Err: err}
		}
	}
	if l == nil || !handover.ValidID(id) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, k.options.Wait)
	defer cancel()
	_, err := l.peer.Call(ctx, handover.KindDetach, handover.Sandbox{Sandbox: id}, nil, nil)
	if err == nil || errors.Is(err, handover.ErrGone) {
		return nil
	}
	return away(err)
}

// SetGrant sets what a sandbox may reach from now on and cuts the connections
// made under another grant. The same grant again changes nothing.
func (k *Keeper) SetGrant(ctx context.Context, grant task.Grant) error {
	k.mu.Lock()
	s := k.kept[grant.Sandbox]
	k.mu.Unlock()
	if s == nil {
		return unknown(grant.Sandbox)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return unknown(grant.Sandbox)
	}
	stored := grant
	stored.Prove = false // a gateway that comes later takes what was proved
	if err := s.journal.append(line{Grant: &stored}); err != nil {
		return &task.Failure{Reason: task.InfraStorage, Text: "the grant can't be stored", Err: err}
	}
	wait := k.options.Wait
	if grant.Prove {
		wait += proofWait
	}
	return k.retry(ctx, wait, func(ctx context.Context, l *link) error {
		if s.inStep != l {
			if err := k.handOver(ctx, l, s); err != nil || !grant.Prove {
				return err
			}
		}
		_, err := l.peer.Call(ctx, handover.KindGrant, handover.Grant{Grant: grant}, nil, nil)
		var f *task.Failure
		if errors.As(err, &f) && f.Reason == task.InputNotFound {
			s.inStep = nil // its end broke and was not attached again yet
			if err := k.handOver(ctx, l, s); err != nil || !grant.Prove {
				return err
			}
			_, err = l.peer.Call(ctx, handover.KindGrant, handover.Grant{Grant: grant}, nil, nil)
		}
		return err
	})
}

// Kept lists the sandboxes that are kept, in order.
func (k *Keeper) Kept() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	ids := make([]string, 0, len(k.kept))
	for id := range k.kept {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// Records gives the gateway's records of a sandbox from the number after on.
// They are read from the file: the gateway may be away, the sandbox gone.
func (k *Keeper) Records(_ context.Context, id string, after int64) ([]task.EgressRecord, error) {
	if !handover.ValidID(id) {
		return nil, unknown(id)
	}
	// The folder belongs to a user that is trusted less than we are.
	fd, err := unix.Open(record.Path(k.options.Records, id), unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, &task.Failure{Reason: task.InfraStorage, Text: "the gateway's records can't be read", Err: err}
	}
	f := os.NewFile(uintptr(fd), id)
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil, &task.Failure{Reason: task.InfraStorage, Text: "the gateway's records can't be read", Err: err}
	}
	out, err := record.Read(f, after)
	if err != nil {
		return nil, &task.Failure{Reason: task.InfraStorage, Text: "the gateway's records can't be read", Err: err}
	}
	return out, nil
}

// Prune removes the records of sandboxes that are not kept and of which nothing
// was written for a day: whoever wanted them has taken them over by then.
func (k *Keeper) Prune(now time.Time) error {
	// The folder belongs to a user that is trusted less than we are: no link of
	// its leads out of it.
	root, err := os.OpenRoot(k.options.Records)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("the gateway's records: %w", err)
	}
	defer root.Close()
	dir, err := root.Open(".")
	if err != nil {
		return fmt.Errorf("the gateway's records: %w", err)
	}
	entries, err := dir.ReadDir(-1)
	if err = errors.Join(err, dir.Close()); err != nil {
		return fmt.Errorf("the gateway's records: %w", err)
	}
	kept := k.Kept()
	var failed error
	for _, entry := range entries {
		id, ok := strings.CutSuffix(entry.Name(), ".jsonl")
		info, err := entry.Info()
		if !ok || err != nil || slices.Contains(kept, id) || now.Sub(info.ModTime()) < recordsAge {
			continue
		}
		if err := root.Remove(entry.Name()); err != nil && !errors.Is(err, os.ErrNotExist) {
			failed = errors.Join(failed, fmt.Errorf("the gateway's records: %w", err))
		}
	}
	return failed
}

// recordsAge is how long records stay after the last of them was written.
const recordsAge = 24 * time.Hour

func unknown(id string) error {
	return &task.Failure{Reason: task.InputNotFound, Text: fmt.Sprintf("sandbox %q has no network here", id)}
}

func away(err error) error {
	return &task.Failure{Reason: task.InfraEgressAway, Text: "no gateway answers on this machine", Err: err}
}

// duplicate makes a pollable file of a descriptor's duplicate.
func duplicate(fd int) (*os.File, error) {
	second, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("device: %w", err)
	}
	if err := unix.SetNonblock(second, true); err != nil {
		unix.Close(second)
		return nil, fmt.Errorf("device: %w", err)
	}
	return os.NewFile(uintptr(second), "device"), nil
}
