// Package sink is the part of denial that runs within the sandbox's kernel, in
// the runsc program: it is called at the end of each system call that can change
// a path, and writes a line when the call was refused on a protected one.
//
// What a call that succeeded costs is the kernel's making of its event and one
// comparison here. Paths are looked at only after a refusal, and then twice: as
// the program gave them, and where they led, so that a link does not hide what
// was tried.
//
// Not promised: a line for every refusal. Alike ones after the first are tallied
// and told at every doubling, and the file is bounded.
package sink

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/fd"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/seccheck"
	pb "gvisor.dev/gvisor/pkg/sentry/seccheck/points/points_go_proto"

	"github.com/cofferdam/cofferdam/internal/sandbox/gvisor/denial"
)

// Register makes the sink known to this program. It is called once, before the
// runtime starts.
func Register() {
	seccheck.RegisterSink(seccheck.SinkDesc{Name: denial.SinkName, Setup: setup, New: open})
}

// setup opens the file, outside of the sandbox.
func setup(config map[string]any) (*os.File, error) {
	name, ok := config["file"].(string)
	if !ok || !path.IsAbs(name) {
		return nil, errors.New("denials: the session names no file")
	}
	return os.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
}

// open makes the sink, within the sandbox's kernel.
func open(config map[string]any, endpoint *fd.FD) (seccheck.Sink, error) {
	if endpoint == nil {
		return nil, errors.New("denials: no file was handed over")
	}
	protected, err := texts(config, "protected")
	if err != nil {
		return nil, err
	}
	pinned, err := texts(config, "pinned")
	if err != nil {
		return nil, err
	}
	return &sink{
		file: endpoint, calls: denial.Calls(), paths: newPaths(protected, pinned),
		seen: map[key]*tally{}, room: denial.MaxBytes - reserve,
	}, nil
}

func texts(config map[string]any, name string) ([]string, error) {
	list, ok := config[name].([]any)
	if !ok && config[name] != nil {
		return nil, fmt.Errorf("denials: %s is no list", name)
	}
	out := make([]string, 0, len(list))
	for _, v := range list {
		text, ok := v.(string)
		if !ok || !path.IsAbs(text) {
			return nil, fmt.Errorf("denials: %s: %v is no absolute path", name, v)
		}
		out = append(out, text)
	}
	return out, nil
}

const (
	reserve = 64 << 10 // bytes of the file that only tallies of what has no room use
	maxKeys = 2048     // kinds of refusals that are told apart
)

// key is what makes two refusals alike.
type key struct{ operation, path, errno, program string }

// tally counts alike refusals.
type tally struct{ total, told int64 }

type sink struct {
	seccheck.SinkDefaults
	file  *fd.FD
	calls map[uint64]denial.Call
	paths paths

	mu      sync.Mutex
	seen    map[key]*tally
	room    int
	more    tally
	spare   int // bytes of the reserve that were used
	dropped uint64
}

// Name implements seccheck.Sink.
func (s *sink) Name() string { return denial.SinkName }

// Status implements seccheck.Sink.
func (s *sink) Status() seccheck.SinkStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return seccheck.SinkStatus{DroppedCount: s.dropped}
}

// Stop implements seccheck.Sink.
func (s *sink) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.file.Close() // What was written is in the file.
	s.room, s.spare = 0, reserve
}

// RawSyscall implements seccheck.Sink. It never fails a call.
func (s *sink) RawSyscall(ctx context.Context, _ seccheck.FieldSet, info *pb.Syscall) error {
	exit := info.GetExit()
	if exit == nil || exit.Errorno == 0 {
		return nil
	}
	var errno string
	switch unix.Errno(exit.Errorno) {
	case unix.EROFS:
		errno = "EROFS"
	case unix.EACCES:
		errno = "EACCES"
	case unix.EBUSY:
		errno = "EBUSY"
	case unix.EPERM:
		errno = "EPERM"
	case unix.EXDEV:
		errno = "EXDEV"
	default:
		return nil
	}
	call, ok := s.calls[info.Sysno]
	t := kernel.TaskFromContext(ctx)
	if !ok || t == nil {
		return nil
	}
	args := [6]uint64{info.Arg1, info.Arg2, info.Arg3, info.Arg4, info.Arg5, info.Arg6}
	for _, arg := range call.Paths {
		given, ok := s.paths.match(t, args, arg)
		if !ok {
			continue
		}
		operation := call.Operation
		if operation == "unlink" && info.Sysno == unix.SYS_UNLINKAT && args[2]&unix.AT_REMOVEDIR != 0 {
			operation = "rmdir"
		}
		s.record(key{operation, denial.Escape(given), errno, denial.EscapeName(t.Name())}, int(t.TGIDInRoot()))
		break
	}
	return nil
}

// record writes a line for a refusal, or counts it.
func (s *sink) record(k key, pid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	count := int64(0)
	have := s.seen[k]
	switch {
	case have == nil && len(s.seen) >= maxKeys:
		s.overflow()
		return
	case have == nil:
		have = &tally{}
		s.seen[k] = have
		have.total, have.told = 1, 1
	default:
		have.total++
		if have.total < 2*have.told {
			return
		}
		count = have.total - have.told
		have.told = have.total
	}
	line := denial.Append(nil, denial.Line{
		Time: time.Now().UnixNano(), Operation: k.operation, Path: k.path, Error: k.errno, Program: k.program, PID: pid, Count: count,
	})
	if len(line) > s.room {
		s.overflow()
		return
	}
	s.room -= len(line)
	s.write(line)
}

// overflow counts what has no room, and tells at every doubling.
func (s *sink) overflow() {
	s.dropped++
	s.more.total++
	if s.more.told > 0 && s.more.total < 2*s.more.told {
		return
	}
	line := denial.Append(nil, denial.Line{Time: time.Now().UnixNano(), Operation: denial.More, Count: s.more.total - s.more.told})
	if s.more.told = s.more.total; len(line) <= reserve-s.spare {
		s.spare += len(line)
		s.write(line)
	}
}

// write appends whole lines. One that can't be written is lost: the workload is
// not to wait for the host's disk.
func (s *sink) write(line []byte) {
	if _, err := s.file.Write(line); err != nil {
		s.dropped++
	}
}

// beneath says whether p is at or beneath top.
func beneath(p, top string) bool {
	return p == top || strings.HasPrefix(p, top) && len(p) > len(top) && p[len(top)] == '/'
}
