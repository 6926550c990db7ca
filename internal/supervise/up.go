package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Options say what to run and how.
type Options struct {
	Data           string        // the data folder; empty: DefaultData
	Listen         string        // HOST:PORT of the API; empty: 127.0.0.1:7070; port 0: a free one
	ListenPublic   bool          // allow an address that other machines reach
	Hosts          string        // further names that clients may call the server by, comma-separated
	KeepTasks      time.Duration // how long tasks that have ended are kept; 0: for ever
	KeepOutputs    time.Duration // how long their outputs' bytes are; 0: as long as the task
	OperatorPolicy string        // file of the operator's policy layer; empty: none
	Prices         string        // file with what models cost; empty: none
	Issuer         string        // https URL of the runs' tokens; empty: there are none
	PublishDelay   time.Duration // of a new key of theirs, before it signs; 0: cofferdamd's own
	DNS            string        // HOST:PORT that the gateway and cofferdamd ask for names outside; empty: the machine's own
	Roots          string        // PEM file of authorities that servers outside are verified under, beside the system's; empty: none
	Images         string        // folder of the worker's root images, which installations may share; "off": none; empty: below Data
	ServiceUser    string        // name or number; empty: see findUsers
	GatewayUser    string        // name or number; empty: see findUsers
	Bin            string        // folder of the programs; empty: that of this executable
	Hold           []string      // program and arguments that come to Hold; its further arguments are those of Hold
	Log            *slog.Logger
	Ready          func(Ready)
}

// Ready tells that everything runs.
type Ready struct {
	URL        string `json:"url"`
	Data       string `json:"data"`
	PID        int    `json:"pid"`            // of the supervisor
	ClientFile string `json:"clientFile"`     // the caller's configuration; empty when it could not be written
	Note       string `json:"note,omitempty"` // why not
	TookOver   int    `json:"tookOver"`       // programs of a killed supervisor that were replaced
	Already    bool   `json:"already"`        // it ran before this call
}

// ErrDrain as the cause of a cancelled context, makes Up destroy every
// sandbox before it ends, as Down does.
var ErrDrain = errors.New("stopped by a person")

// ErrRunning is in the chain of the fault that Up gives when the installation
// runs already.
var ErrRunning = errors.New("runs already")

type supervisor struct {
	opts   Options
	layout Layout
	users  users
	listen string
	url    string
	log    *slog.Logger
}

// Up runs the installation until ctx is done, and then ends what it started.
func Up(ctx context.Context, o Options) error {
	s, err := newSupervisor(o)
	if err != nil {
		return err
	}
	if err := s.layout.makeFolders(s.users); err != nil {
		return err
	}
	if err := reachable(s.layout.Data, s.users.service); err != nil {
		return err
	}
	if err := reachable(s.layout.Data, s.users.gateway); err != nil {
		return err
	}
	unlock, locked, err := s.layout.lock()
	if err != nil {
		return err
	}
	if !locked {
		return s.layout.runningFault()
	}
	defer unlock()
	return s.run(ctx)
}

func newSupervisor(o Options) (*supervisor, error) {
	if err := checkRoot("up"); err != nil {
		return nil, err
	}
	l, err := NewLayout(o.Data)
	if err != nil {
		return nil, err
	}
	if o.Listen == "" {
		o.Listen = "127.0.0.1:7070"
	}
	if o.Bin, err = binFolder(o.Bin); err != nil {
		return nil, err
	}
	u, err := findUsers(o.ServiceUser, o.GatewayUser)
	if err != nil {
		return nil, err
	}
	if err := checkPrograms(o.Bin, u); err != nil {
		return nil, err
	}
	for _, who := range []owner{u.service, u.gateway} {
		if err := reachable(o.Hold[0], who); err != nil {
			return nil, err
		}
	}
	return &supervisor{opts: o, layout: l, users: u, log: o.Log}, nil
}

func binFolder(bin string) (string, error) {
	if bin == "" {
		exe, err := os.Executable()
		if err != nil {
			return "", faultOf(CodeMachine, err, "folder of the programs")
		}
		bin = filepath.Dir(exe)
	}
	abs, err := filepath.Abs(bin)
	if err != nil {
		return "", faultOf(CodeInvalid, err, "--bin %s", bin)
	}
	return abs, nil
}

// run does everything that needs the lock.
func (s *supervisor) run(ctx context.Context) error {
	// What can be known before is: a start that fails must not have ended
	// daemons that ran.
	if err := checkMachine(s.layout); err != nil {
		return err
	}
	self, err := s.describe()
	if err != nil {
		return err
	}
	defer s.layout.dropRecord(supervisorName)
	ended, err := s.layout.endPrograms(false)
	if err != nil {
		return err
	}
	if len(ended) > 0 {
		s.log.Info("took over from a supervisor that was killed", "ended", len(ended))
	}
	if s.listen, err = listenAddress(s.opts.Listen, s.opts.ListenPublic); err != nil {
		return err
	}
	s.url = reachURL(s.listen)
	if err := s.prepare(); err != nil {
		return err
	}
	var children []*child
	defer func() { s.endAll(ctx, children) }()
	for _, p := range s.programs() {
		c := newChild(p, s.layout, s.opts.Bin, s.opts.Hold, s.log)
		if err := c.start(ctx); err != nil {
			return s.stopped(ctx, err)
		}
		children = append(children, c)
		if err := s.after(ctx, p.name); err != nil {
			return s.stopped(ctx, err)
		}
	}
	path, note, err := s.layout.writeClientFiles(s.url)
	if err != nil {
		return err
	}
	self.URL = s.url
	if err := s.layout.writeRecord(self); err != nil {
		return err
	}
	r := Ready{URL: s.url, Data: s.layout.Data, PID: self.PID, ClientFile: path, TookOver: len(ended)}
	if note != nil {
		r.Note = note.Error()
	}
	s.opts.Ready(r)
	s.handOn(ctx)
	return nil
}

// endAll ends the programs, the last started first.
func (s *supervisor) endAll(ctx context.Context, children []*child) {
	if errors.Is(context.Cause(ctx), ErrDrain) {
		if err := s.layout.markStop(); err != nil {
			s.log.Error("sandboxes are kept", "error", err)
		}
	}
	for _, c := range slices.Backward(children) {
		s.log.Info("stopping", "program", c.name)
		c.end()
	}
}

// stopped hides the error of a start that was stopped from outside.
func (s *supervisor) stopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// describe writes the supervisor's own record, by which Down finds it.
func (s *supervisor) describe() (Record, error) {
	exe, err := os.Executable()
	if err == nil {
		exe, err = filepath.EvalSymlinks(exe)
	}
	if err != nil {
		return Record{}, faultOf(CodeMachine, err, "this executable")
	}
	r, err := newRecord(supervisorName, os.Getpid(), exe)
	if err != nil {
		return Record{}, faultOf(CodeMachine, err, "this process")
	}
	return r, s.layout.writeRecord(r)
}

// prepare puts the files in place that the programs are pointed at.
func (s *supervisor) prepare() error {
	if err := os.Remove(s.layout.stopMarker()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return faultOf(CodeStorage, err, "remove %s", s.layout.stopMarker())
	}
	// Root's files, which the programs may read and not change. The authorities
	// are no secret, and two users read them.
	return errors.Join(
		given("--policy-operator", s.opts.OperatorPolicy, s.layout.operatorPolicy(), 0o640, owner{0, s.users.service.gid}),
		given("--prices", s.opts.Prices, s.layout.prices(), 0o640, owner{0, s.users.service.gid}),
		given("--roots", s.opts.Roots, s.layout.roots(), 0o644, owner{}),
	)
}

// given copies a file that a flag names to where the programs read it.
func given(flag, from, to string, mode fs.FileMode, who owner) error {
	if from == "" {
		return nil
	}
	f, err := os.Open(from)
	if err != nil {
		return faultOf(CodeInvalid, err, "%s", flag)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 1<<20+1))
	if err != nil {
		return faultOf(CodeInvalid, err, "%s %s", flag, from)
	}
	if len(text) > 1<<20 {
		return fault(CodeInvalid, "%s %s: larger than 1 MiB", flag, from)
	}
	return writeFile(to, text, mode, who)
}

// after does what the next program needs once one is ready.
func (s *supervisor) after(ctx context.Context, name string) error {
	if name != "cofferdamd" {
		return nil
	}
	if err := s.healthy(ctx); err != nil {
		return err
	}
	return errors.Join(s.layout.copyWorkerToken(), s.layout.copyGatewayToken(s.users.gateway))
}

// healthy waits until the API answers, and makes sure that it is ours.
func (s *supervisor) healthy(ctx context.Context) error {
	var last error
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		boot, err := s.ask(ctx)
		if err == nil {
			ours, err := s.layout.boot("cofferdamd")
			if err == nil && ours.Boot == boot {
				return nil
			}
			last = errors.New("another server answers there")
		} else {
			last = err
		}
		if err := pauseFor(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	return faultOf(CodeProgram, last, "%s/v1/health does not answer though cofferdamd runs; see %s", s.url, s.layout.LogFile("cofferdamd"))
}

func (s *supervisor) ask(ctx context.Context) (boot string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/v1/health", nil)
	if err != nil {
		return "", err
	}
	tr := &http.Transport{DisableKeepAlives: true} // no proxy: it is this machine
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("it answers %s", resp.Status)
	}
	var health struct{ Boot string }
	if err := json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(&health); err != nil {
		return "", fmt.Errorf("its answer: %w", err)
	}
	return health.Boot, nil
}

// markStop makes the worker destroy every sandbox before it ends.
func (l Layout) markStop() error { return writeFile(l.stopMarker(), nil, 0o600, owner{}) }

// lock takes the installation's lock, which ends with the process; locked is
// false when another supervisor has it.
func (l Layout) lock() (unlock func(), locked bool, err error) {
	f, err := os.OpenFile(l.lockFile(), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, false, faultOf(CodeStorage, err, "lock %s", l.lockFile())
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		f.Close()
		return nil, false, nil
	}
	if err != nil {
		f.Close()
		return nil, false, faultOf(CodeStorage, err, "lock %s", l.lockFile())
	}
	return func() { f.Close() }, true, nil
}

func (l Layout) runningFault() error {
	r, ok, err := l.readRecord(supervisorName)
	text := "the installation in " + l.Data + " is being started or stopped by another process; wait for it, or stop it with `cofferdam down --data " + l.Data + "`"
	if err == nil && ok && r.URL != "" {
		text = fmt.Sprintf("the installation in %s runs already, at %s (process %d); stop it with `cofferdam down --data %s`", l.Data, r.URL, r.PID, l.Data)
	}
	return faultOf(CodeConflict, ErrRunning, "%s", text)
}

// Running returns what an installation that is ready told when it became so.
func Running(data string) (Ready, bool) {
	l, err := NewLayout(data)
	if err != nil {
		return Ready{}, false
	}
	r, ok, err := l.readRecord(supervisorName)
	if err != nil || !ok || r.URL == "" || !r.Alive() {
		return Ready{}, false
	}
	return Ready{URL: r.URL, Data: l.Data, PID: r.PID, ClientFile: l.ClientFile(), Already: true}, true
}

// OpenUpLog opens the log of a supervisor in the background, and makes the
// folders down to it.
func OpenUpLog(data string) (*os.File, error) {
	if err := checkRoot("up"); err != nil {
		return nil, err
	}
	l, err := NewLayout(data)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(l.Data), 0o755); err != nil {
		return nil, faultOf(CodeStorage, err, "data folder %s: can't make the folders above it", l.Data)
	}
	for _, f := range []struct {
		path string
		mode os.FileMode
	}{{l.Data, 0o711}, {l.path("log"), 0o700}} {
		if err := makeFolder(f.path, f.mode, owner{}); err != nil {
			return nil, err
		}
	}
	log, _, err := openLog(l.LogFile(supervisorName))
	return log, err
}
