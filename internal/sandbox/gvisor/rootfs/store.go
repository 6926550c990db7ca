package rootfs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// RescanPace is how long a scan is believed while the stamp stays the same.
const RescanPace = 10 * time.Minute

// settlePace is how long a source must stay the same before it is scanned: an
// installation changes it many times.
const settlePace = 2 * time.Second

// firstRetry is how long after a failure it is tried again. The delay doubles with
// each failure, to RescanPace at most.
const firstRetry = 5 * time.Second

// stampLife is how long a stamp is believed, for many sandboxes made at once.
const stampLife = time.Second

// Source is a folder of the host.
type Source struct {
	Name string // a word of a–z and 0–9, such as "usr"
	Path string // absolute
}

// Image is a whole image of a source.
type Image struct {
	Name string // the source's
	Path string // of the image file
}

// Config says what a Store works with. All but Records are required.
type Config struct {
	Dir     string // the images' folder; made when absent; may be shared by several processes
	Sources []Source
	Records []string // files that change when packages are installed; they may be absent
	Mkfs    string   // the program that makes images, such as "mkfs.erofs"
	Logger  *slog.Logger
	// Probe runs a program from an image and says why it can't.
	Probe func(ctx context.Context, image Image) error
}

// Store has the images of one machine's sources.
type Store struct {
	cfg   Config
	poke  chan struct{} // something may have changed
	retry time.Duration // the first delay after a failure

	order []string // the names of all sources

	mu      sync.Mutex
	current map[string]*held  // by source
	status  map[string]status // by source
	stamps  map[string]string // by source; of stampedAt
	stamped time.Time
	old     []*held // replaced, still in use
}

// held is an image that this process has locked.
type held struct {
	image Image
	stamp string
	lock  *os.File
	refs  int
}

// status is what is told of a source without an image.
type status struct {
	text   string
	half   string // the image that is being made; empty: none
	size   int64  // its size when it is whole
	failed string // the source's stamp when its image could not be made; empty: it did not fail
}

var word = regexp.MustCompile(`^[a-z0-9]+$`)

// New opens the images' folder. It makes nothing: call Run.
func New(cfg Config) (*Store, error) {
	if cfg.Dir == "" || cfg.Mkfs == "" || cfg.Logger == nil || cfg.Probe == nil {
		return nil, errors.New("root images: Dir, Mkfs, Logger and Probe are required")
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("root images: %w", err)
	}
	cfg.Dir = dir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("root images: %w", err)
	}
	s := &Store{cfg: cfg, poke: make(chan struct{}, 1), retry: firstRetry, current: map[string]*held{}, status: map[string]status{}}
	s.cfg.Sources = nil
	for _, source := range cfg.Sources {
		if !word.MatchString(source.Name) || !filepath.IsAbs(source.Path) {
			return nil, fmt.Errorf("root images: source %q at %q is not valid", source.Name, source.Path)
		}
		s.order = append(s.order, source.Name)
		if strings.HasPrefix(dir+"/", filepath.Clean(source.Path)+"/") {
			s.status[source.Name] = status{text: fmt.Sprintf("is not made, since the images' own folder %s lies below %s; give another data folder", dir, source.Path)}
			continue
		}
		s.cfg.Sources = append(s.cfg.Sources, source)
		s.status[source.Name] = status{text: "is not made yet"}
	}
	return s, nil
}

func (s *Store) path(name, digest string) string {
	return filepath.Join(s.cfg.Dir, name+"-"+digest+".erofs")
}

// Acquire returns the images of the sources as they are now, by source. A source
// that is not among them has none, or has changed since. The images stay until
// release is called.
func (s *Store) Acquire() (images map[string]Image, release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.stamped) > stampLife {
		s.stamps = s.stampAll()
		s.stamped = time.Now()
	}
	images = map[string]Image{}
	var taken []*held
	for name, h := range s.current {
		if h.stamp != s.stamps[name] {
			s.wake()
			continue
		}
		h.refs++
		taken = append(taken, h)
		images[name] = h.image
	}
	for name, st := range s.status {
		if st.failed != "" && st.failed != s.stamps[name] {
			s.wake() // What was missing may have been installed.
		}
	}
	return images, sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, h := range taken {
			h.refs--
		}
		s.dropOld()
	})
}

func (s *Store) stampAll() map[string]string {
	stamps := map[string]string{}
	for _, source := range s.cfg.Sources {
		stamps[source.Name] = stamp(source.Path, s.cfg.Records)
	}
	return stamps
}

func (s *Store) wake() {
	select {
	case s.poke <- struct{}{}:
	default: // It is awake already.
	}
}

// Run makes images, and makes them again when their source changed, until ctx
// ends.
func (s *Store) Run(ctx context.Context) {
	tick := time.NewTicker(RescanPace)
	defer tick.Stop()
	defer s.letGo()
	if err := s.removeHalves(); err != nil {
		s.cfg.Logger.Warn("root image: remove what an earlier builder left", "error", err)
	}
	delay := s.retry
	for {
		failed := false
		for _, source := range s.cfg.Sources {
			err := s.refresh(ctx, source)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				failed = true
				s.fail(source, err, delay)
			}
		}
		if err := s.prune(); err != nil {
			s.cfg.Logger.Warn("root image: remove what nobody uses", "error", err)
		}
		var again <-chan time.Time
		if failed {
			again = time.After(delay)
			delay = min(2*delay, RescanPace)
		} else {
			delay = s.retry
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-again:
		case <-s.poke:
		}
	}
}

func (s *Store) fail(source Source, err error, delay time.Duration) {
	s.cfg.Logger.Warn("root image: sandboxes see the folder itself, which is slower", "folder", source.Path, "error", err, "again", delay)
	now := stamp(source.Path, s.cfg.Records)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current[source.Name] == nil {
		s.status[source.Name] = status{text: fmt.Sprintf("can't be made: %v (it is tried again)", err), failed: now}
	}
}

// refresh sees to it that a source has the image of what it is now.
func (s *Store) refresh(ctx context.Context, source Source) error {
	for {
		now, err := s.settled(ctx, source)
		if err != nil {
			return err
		}
		found, err := s.scan(ctx, source, now)
		if err != nil {
			return err
		}
		err = s.take(source, now, found)
		if errors.Is(err, os.ErrNotExist) {
			err = s.build(ctx, source, now, found)
		}
		if !errors.Is(err, errChanged) {
			return err
		}
		s.forget(source)
	}
}

// settled waits until the stamp stays the same, and returns it.
func (s *Store) settled(ctx context.Context, source Source) (string, error) {
	now := stamp(source.Path, s.cfg.Records)
	s.mu.Lock()
	h := s.current[source.Name]
	same := h == nil || h.stamp == now
	s.mu.Unlock()
	for !same {
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(settlePace):
		}
		last := now
		now = stamp(source.Path, s.cfg.Records)
		same = last == now
	}
	return now, nil
}

// memory is what is remembered of a scan, for the next start and for others who
// share the folder.
type memory struct {
	Path  string    `json:"path"`
	Stamp string    `json:"stamp"`
	At    time.Time `json:"at"`
	scan
}

// scan walks over a source, unless that was done a short while ago.
func (s *Store) scan(ctx context.Context, source Source, now string) (scan, error) {
	file := filepath.Join(s.cfg.Dir, source.Name+".scan")
	var m memory
	var err error
	if text, err := os.ReadFile(file); err == nil && json.Unmarshal(text, &m) == nil {
		age := time.Since(m.At)
		if m.Path == source.Path && m.Stamp == now && age >= 0 && age < RescanPace {
			return m.scan, nil
		}
	}
	s.mu.Lock()
	if s.current[source.Name] == nil {
		s.status[source.Name] = status{text: "is not made yet; the folder is being scanned"}
	}
	s.mu.Unlock()
	m = memory{Path: source.Path, Stamp: now, At: time.Now()}
	if m.scan, err = walk(ctx, source.Path); err != nil {
		return scan{}, err
	}
	return m.scan, s.remember(file, m)
}

// forget makes the next scan a real one.
func (s *Store) forget(source Source) {
	if err := os.Remove(filepath.Join(s.cfg.Dir, source.Name+".scan")); err != nil && !errors.Is(err, os.ErrNotExist) {
		s.cfg.Logger.Warn("root image: forget a scan", "error", err)
	}
}

func (s *Store) remember(file string, m memory) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	half, err := os.CreateTemp(s.cfg.Dir, halfScan)
	if err != nil {
		return err
	}
	defer os.Remove(half.Name())
	_, err = half.Write(text)
	if err := errors.Join(err, half.Close()); err != nil {
		return err
	}
	return os.Rename(half.Name(), file)
}

// take locks an image and makes it the source's current one. os.ErrNotExist: there
// is none.
func (s *Store) take(source Source, now string, found scan) error {
	path := s.path(source.Name, found.Digest)
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.current[source.Name]
	if h != nil && h.image.Path == path {
		h.stamp = now
		return nil
	}
	if h != nil {
		s.old = append(s.old, h)
		delete(s.current, source.Name)
		s.dropOld()
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil {
		file.Close()
		return fmt.Errorf("%s: lock it: %w", path, err)
	}
	if err := errors.Join(checkImage(path), sameFile(file, path)); err != nil {
		file.Close()
		return err
	}
	s.current[source.Name] = &held{image: Image{Name: source.Name, Path: path}, stamp: now, lock: file}
	s.status[source.Name] = status{}
	s.cfg.Logger.Info("root image: ready", "folder", source.Path, "image", path)
	return nil
}

// sameFile fails with os.ErrNotExist when the path is another file than the open
// one: it was removed before the lock was ours.
func sameFile(file *os.File, path string) error {
	ours, err := file.Stat()
	if err != nil {
		return err
	}
	there, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !os.SameFile(ours, there) {
		return os.ErrNotExist
	}
	return nil
}

// dropOld unlocks replaced images that nobody uses any more. s.mu is held.
func (s *Store) dropOld() {
	kept := s.old[:0]
	for _, h := range s.old {
		if h.refs > 0 {
			kept = append(kept, h)
			continue
		}
		h.lock.Close() // Ends the lock.
	}
	s.old = kept
}

// letGo unlocks everything that nobody uses.
func (s *Store) letGo() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, h := range s.current {
		s.old = append(s.old, h)
		delete(s.current, name)
	}
	s.dropOld()
}

func (s *Store) say(name, text, half string, size int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current[name] == nil {
		s.status[name] = status{text: text, half: half, size: size}
	}
}

// Status is how far the image of a source is.
type Status struct {
	Name  string // the source's
	Ready bool
	Text  string // when it is not ready: what is done about it, or what is wrong and what to do
}

// Status tells of all sources, in the order of Config.Sources.
func (s *Store) Status() []Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Status
	for _, name := range s.order {
		if s.current[name] != nil {
			all = append(all, Status{Name: name, Ready: true})
			continue
		}
		st := s.status[name]
		if info, err := os.Stat(st.half); st.half != "" && err == nil && st.size > 0 {
			st.text += fmt.Sprintf(" (%d %% of about %d MB)", min(99, info.Size()*100/st.size), st.size>>20)
		}
		all = append(all, Status{Name: name, Text: "the image of " + name + " " + st.text})
	}
	return all
}
