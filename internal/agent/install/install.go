// Package install keeps the harnesses of one machine: it fetches their packages
// from the npm registry, checks them, unpacks them and gives sandboxes their
// folders. Nothing of a package is executed here, neither its install scripts
// nor its programs: they run inside sandboxes only.
//
// Words. A package is installed when its folder NAME/VERSION is there with its
// receipt; it is made in a folder of another name, synced, and renamed, so a
// crash leaves either all of it or nothing that is looked at. A pinned version
// must hash to what the catalog says; for another the registry's own digest is
// taken, and the receipt says so.
package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cofferdam/cofferdam/internal/agent/catalog"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Registry is where packages come from unless the operator says otherwise.
const Registry = "https://registry.npmjs.org"

// The states of a package.
const (
	Installing = "installing"
	Installed  = "installed"
	Failed     = "failed"
)

// Package is one version of one harness on this machine.
type Package struct {
	Name    string      `json:"name"`
	Version string      `json:"version"`
	State   string      `json:"state"`
	Pinned  bool        `json:"pinned"`           // the version this release was tried with
	SHA512  string      `json:"sha512,omitempty"` // base64, of the package's tarball
	Size    int64       `json:"size,omitempty"`   // bytes unpacked
	Done    int64       `json:"done,omitempty"`   // bytes fetched, while installing
	Total   int64       `json:"total,omitempty"`  // bytes to fetch; 0: not known yet
	Reason  task.Reason `json:"reason,omitempty"` // of failed
	Text    string      `json:"text,omitempty"`   // of failed, in words
}

// Options says how a Shelf works. Dir and Log are required.
type Options struct {
	Dir      string       // made when absent
	Registry string       // URL; empty: Registry
	Client   *http.Client // nil: one with the system's roots and proxy
	Arch     string       // empty: this machine's
	Log      *slog.Logger
	Catalog  func(name string) (catalog.Harness, bool) // nil: catalog.Find
}

// Shelf is the machine's packages. It is safe for concurrent use.
type Shelf struct {
	o       Options
	ctx     context.Context // of installations; ends with Close
	stop    context.CancelFunc
	running sync.WaitGroup

	mu   sync.Mutex
	work map[string]*Package // installing or failed, by "name@version"
}

// receiptFile lies beside the package's own files.
const receiptFile = "cofferdam.json"

// half is how names of folders under way begin.
const half = ".new-"

// Open opens the shelf and removes what an earlier process left half-made.
func Open(o Options) (*Shelf, error) {
	if o.Registry == "" {
		o.Registry = Registry
	}
	registry, err := url.Parse(o.Registry)
	if err != nil || registry.Scheme != "https" && registry.Scheme != "http" || registry.Host == "" {
		return nil, task.Fail(task.InputInvalid, "the registry is not an http or https URL", nil)
	}
	if registry.User != nil {
		return nil, task.Fail(task.InputInvalid, "the registry's URL must not carry a user or password, which errors and logs would tell", nil)
	}
	if o.Client == nil {
		o.Client = &http.Client{}
	}
	o.Client = staying(o.Client, registry)
	if o.Arch == "" {
		o.Arch = runtime.GOARCH
	}
	if o.Catalog == nil {
		o.Catalog = catalog.Find
	}
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, storage("the folder of agents can't be made", err)
	}
	entries, err := os.ReadDir(o.Dir)
	if err != nil {
		return nil, storage("the folder of agents can't be read", err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), half) {
			if err := os.RemoveAll(filepath.Join(o.Dir, e.Name())); err != nil {
				return nil, storage("a half-made agent can't be removed", err)
			}
		}
	}
	s := &Shelf{o: o, work: map[string]*Package{}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s, nil
}

// Close ends installations that are under way and waits for them.
func (s *Shelf) Close() {
	s.stop()
	s.running.Wait()
}

func storage(text string, err error) error { return task.Fail(task.InfraStorage, text, err) }

// Dir is the folder of an installed package; a *task.Failure with
// task.InputInvalid that says what to do when it is not installed.
func (s *Shelf) Dir(name, version string) (string, error) {
	if _, err := s.receipt(name, version); err != nil {
		return "", task.Fail(task.InputInvalid, fmt.Sprintf(
			"agent %s@%s is not installed on this machine; run `cofferdam agent install %s@%s`", name, version, name, version), err)
	}
	return s.folder(name, version), nil
}

func (s *Shelf) folder(name, version string) string { return filepath.Join(s.o.Dir, name, version) }

// receipt reads what an installed package says of itself.
func (s *Shelf) receipt(name, version string) (Package, error) {
	var p Package
	if _, ok := s.o.Catalog(name); !ok || !catalog.ValidVersion(version) {
		return p, fs.ErrNotExist
	}
	text, err := os.ReadFile(filepath.Join(s.folder(name, version), receiptFile))
	if err != nil {
		return p, err
	}
	if err := json.Unmarshal(text, &p); err != nil {
		return p, err
	}
	p.State = Installed
	return p, nil
}

// List returns what is installed, under way, or failed since this process
// began, by name and version.
func (s *Shelf) List() ([]Package, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []Package{}
	for _, p := range s.work {
		list = append(list, *p)
	}
	names, err := os.ReadDir(s.o.Dir)
	if err != nil {
		return nil, storage("the folder of agents can't be read", err)
	}
	for _, name := range names {
		versions, err := os.ReadDir(filepath.Join(s.o.Dir, name.Name()))
		if err != nil {
			continue // no folder: none of ours
		}
		for _, v := range versions {
			if p, err := s.receipt(name.Name(), v.Name()); err == nil {
				list = append(list, p)
			}
		}
	}
	slices.SortFunc(list, func(a, b Package) int { return strings.Compare(a.Name+"@"+a.Version, b.Name+"@"+b.Version) })
	return list, nil
}

// Install begins to install a version, unless it is installed or under way, and
// says where it stands. An empty version is the pinned one.
func (s *Shelf) Install(name, version string) (Package, error) {
	h, ok := s.o.Catalog(name)
	if !ok {
		return Package{}, task.Fail(task.InputInvalid, fmt.Sprintf("agent %q is not known; there are %s", name, catalog.Names()), nil)
	}
	if version == "" {
		version = h.Version
	}
	if !catalog.ValidVersion(version) {
		return Package{}, task.Fail(task.InputInvalid, fmt.Sprintf("version %q of agent %s is not one such as %s", version, name, h.Version), nil)
	}
	source, ok := h.For(s.o.Arch, version)
	if !ok {
		return Package{}, task.Fail(task.InputInvalid, fmt.Sprintf("agent %s has no package for this machine (%s)", name, s.o.Arch), nil)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p, err := s.receipt(name, version); err == nil {
		return p, nil
	}
	key := name + "@" + version
	if p, ok := s.work[key]; ok && p.State == Installing {
		return *p, nil
	}
	if s.ctx.Err() != nil {
		return Package{}, task.Fail(task.InfraInternal, "the worker is stopping", nil)
	}
	p := &Package{Name: name, Version: version, State: Installing, Pinned: version == h.Version}
	s.work[key] = p
	s.running.Go(func() { s.install(key, p, source) })
	return *p, nil
}

// installLimit bounds one installation.
const installLimit = 30 * time.Minute

func (s *Shelf) install(key string, p *Package, source catalog.Source) {
	ctx, cancel := context.WithTimeout(s.ctx, installLimit)
	defer cancel()
	err := s.make(ctx, p, source)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		delete(s.work, key)
		s.o.Log.Info("agent installed", "agent", key)
		return
	}
	s.o.Log.Warn("agent not installed", "agent", key, "error", err)
	var f *task.Failure
	if !errors.As(err, &f) {
		f = task.Fail(task.InfraInternal, "the agent could not be installed; the worker's log says why", err)
	}
	p.State, p.Reason, p.Text = Failed, f.Reason, f.Text
}

// make fetches, checks, unpacks and puts the package in its place.
func (s *Shelf) make(ctx context.Context, p *Package, source catalog.Source) error {
	dir, err := os.MkdirTemp(s.o.Dir, half)
	if err != nil {
		return storage("the agent's folder can't be made", err)
	}
	defer os.RemoveAll(dir)
	tarball, err := s.fetch(ctx, dir, p, source)
	if err != nil {
		return err
	}
	defer tarball.Close()
	size, err := s.unpack(ctx, dir, tarball, source)
	if err != nil {
		return err
	}
	if err := os.Remove(tarball.Name()); err != nil {
		return storage("the fetched package can't be removed", err)
	}
	s.mu.Lock()
	p.Size = size
	receipt := *p
	s.mu.Unlock()
	receipt.State, receipt.Done, receipt.Total = Installed, 0, 0
	if err := finish(dir, receipt); err != nil {
		return storage("the agent can't be written", err)
	}
	parent := filepath.Join(s.o.Dir, p.Name)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return storage("the agent's folder can't be made", err)
	}
	target := s.folder(p.Name, p.Version)
	// What is there without a receipt is nobody's.
	if err := errors.Join(os.RemoveAll(target), os.Rename(dir, target), syncDir(parent)); err != nil {
		return storage("the agent can't be put in its place", err)
	}
	return nil
}

// finish writes the receipt and makes everything durable.
func finish(dir string, p Package) error {
	text, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, receiptFile), append(text, '\n'), 0o644); err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Syncfs(int(f.Fd())) // thousands of files at once
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Remove takes a package away. used says whether a living sandbox has it.
func (s *Shelf) Remove(name, version string, used func(pack string) bool) error {
	key := name + "@" + version
	s.mu.Lock()
	defer s.mu.Unlock()
	p, working := s.work[key]
	if working && p.State == Installing {
		return task.Fail(task.InputConflict, "agent "+key+" is being installed; try again when that has ended", nil)
	}
	delete(s.work, key)
	if _, err := s.receipt(name, version); err != nil {
		if working {
			return nil
		}
		return task.Fail(task.InputNotFound, "agent "+key+" is not installed on this machine", nil)
	}
	if used(key) {
		return task.Fail(task.InputConflict, "agent "+key+" is in use by a sandbox; try again when that has ended", nil)
	}
	// First out of its place, so that no crash leaves half of it there.
	gone, err := os.MkdirTemp(s.o.Dir, half)
	if err == nil {
		err = errors.Join(os.Rename(s.folder(name, version), filepath.Join(gone, "gone")), os.RemoveAll(gone))
	}
	if err != nil {
		return storage("the agent can't be removed", err)
	}
	return nil
}

// progress counts fetched bytes for those who look.
type progress struct {
	io.Reader
	s *Shelf
	p *Package
}

// Read counts.
func (r progress) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	r.s.mu.Lock()
	r.p.Done += int64(n)
	r.s.mu.Unlock()
	return n, err
}
