package agent

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/cofferdam/cofferdam/internal/guest"
	"github.com/cofferdam/cofferdam/internal/guest/agent/files"
	"github.com/cofferdam/cofferdam/internal/guest/agent/quota"
	"github.com/cofferdam/cofferdam/internal/guest/agent/trust"
)

// Options say where the agent lives. The zero value is the first process of a
// sandbox; tests set Root and leave the users alone.
type Options struct {
	Root      string // before every path that Configure writes; empty: none
	SameUser  bool   // commands and transfers run as the agent's own user, since it isn't root
	Workspace string // the default folder of commands; empty: /workspace
}

// Agent is the first process of a sandbox.
type Agent struct {
	opts Options
	init bool   // it is the first process of its namespace
	boot string // random, for the agent's life
	null int    // the null device, for the commands' standard input
	base uint64 // of the marks

	procs    sync.Mutex // held while a process is started or reaped
	started  *sync.Cond // with procs: a process was started
	mains    map[int]*command
	marks    uint64      // marks given so far
	limitNow unix.Rlimit // RLIMIT_NPROC of the agent itself
	mayRaise bool        // a hard limit that was lowered

	mu      sync.Mutex
	wake    *sync.Cond // the writer's
	epoch   uint64     // 0: no worker said hello yet
	outbox  []guest.Frame
	resync  bool // the worker was told that bytes were lost
	env     []string
	byID    map[string]*command
	byNum   map[uint64]*command
	active  []*command // in the order of their numbers
	turn    int        // of active: whose output goes next
	kept    int64      // bytes of output kept for all commands
	scratch []byte     // to read pipes into
	frame   []byte     // to build an output frame in
	flows   map[uint64]*flow
	watched bool // somebody samples the count of processes

	watching bool        // somebody looks at what the workload uses
	inodes   quota.Files // whoever does

	protection protection
	frozen     atomic.Bool  // for good; see freezeAll
	effects    files.Memory // on files, that were had
}

// New prepares an agent. It takes over the reaping of children.
func New(opts Options) (*Agent, error) {
	if opts.Workspace == "" {
		opts.Workspace = "/workspace"
	}
	null, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("/dev/null: %w", err)
	}
	var id [16]byte
	rand.Read(id[:])
	a := &Agent{
		opts: opts, init: os.Getpid() == 1, boot: hex.EncodeToString(id[:]), null: null,
		base:  1<<50 + uint64(binary.BigEndian.Uint16(id[:]))<<32 + 1<<31,
		mains: map[int]*command{}, byID: map[string]*command{}, byNum: map[uint64]*command{},
		flows: map[uint64]*flow{}, scratch: make([]byte, guest.MaxChunk),
	}
	a.env = baseEnv(nil, false)
	a.started, a.wake = sync.NewCond(&a.procs), sync.NewCond(&a.mu)
	if err := a.harden(); err != nil {
		return nil, err
	}
	return a, nil
}

// harden makes orphans ours to reap, and the agent unreadable for others.
func (a *Agent) harden() error {
	if !a.init {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("become the subreaper: %w", err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("become undumpable: %w", err)
	}
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &a.limitNow); err != nil {
		return fmt.Errorf("limit of processes: %w", err)
	}
	caps := [2]unix.CapUserData{}
	if err := unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &caps[0]); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	if err := keepOwn(caps); err != nil {
		return err
	}
	a.mayRaise = caps[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
	unix.Umask(0o022)
	return a.apart()
}

// Serve answers the worker until in ends (which a FIFO held read-write doesn't)
// or ctx does.
func (a *Agent) Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	// Nobody may end the first process with a plain signal. They are caught, not
	// ignored: an ignored signal is inherited by commands.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT)
	defer signal.Stop(signals)
	ended := make(chan error, 2)
	go a.reap()
	go func() { ended <- a.read(in) }()
	go func() { ended <- a.write(out) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// baseEnv is what every command finds in its environment.
func baseEnv(extra []string, authority bool) []string {
	env := []string{
		"PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/home/agent", "USER=agent", "LOGNAME=agent", "SHELL=/bin/bash",
		"LANG=C.UTF-8", "TERM=dumb", "TMPDIR=/tmp",
	}
	if authority {
		env = append(env, trust.Env()...)
	}
	return mergeEnv(env, extra)
}

// mergeEnv returns base with extra over it. What is not KEY=VALUE is left out.
func mergeEnv(base, extra []string) []string {
	merged := make([]string, 0, len(base)+len(extra))
	at := map[string]int{}
	for _, list := range [][]string{base, extra} {
		for _, entry := range list {
			key, _, ok := strings.Cut(entry, "=")
			if !ok || key == "" || strings.IndexByte(entry, 0) >= 0 {
				continue
			}
			if i, ok := at[key]; ok {
				merged[i] = entry
				continue
			}
			at[key] = len(merged)
			merged = append(merged, entry)
		}
	}
	return merged
}
