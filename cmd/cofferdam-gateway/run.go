package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"

	"github.com/cofferdam/cofferdam/internal/egress/service"

	"golang.org/x/sys/unix"

	"github.com/cofferdam/cofferdam/internal/boot"
	"github.com/cofferdam/cofferdam/internal/egress"
	"github.com/cofferdam/cofferdam/internal/egress/guard"
	"github.com/cofferdam/cofferdam/internal/egress/outbound"
)

// flags are the program's arguments.
type flags struct {
	data    string
	dns     string
	roots   string
	protect []netip.AddrPort
	debug   bool

	control, controlToken string
}

func parse(args []string, stderr io.Writer) (flags, error) {
	var f flags
	set := flag.NewFlagSet("cofferdam-gateway", flag.ContinueOnError)
	set.SetOutput(stderr)
	set.StringVar(&f.data, "data", "/var/lib/cofferdam", "data `folder` of the installation")
	set.StringVar(&f.dns, "dns", "", "`host:port` of the name server for allowed names (default: as this machine is set up)")
	set.StringVar(&f.roots, "roots", "", "PEM `file` of authorities that servers outside are verified under, beside the system's; trusted inside sandboxes too")
	set.StringVar(&f.control, "control", "", "`URL` of cofferdamd, which lends credentials (default: none is lent)")
	set.StringVar(&f.controlToken, "control-token-file", "", "`file` with the gateway's token; read again at each question")
	set.BoolVar(&f.debug, "debug", false, "log every look-up and dial that fails")
	set.Func("protect", "`host:port` of a listener that no sandbox ever reaches; may be repeated", func(s string) error {
		p, err := protected(s)
		f.protect = append(f.protect, p...)
		return err
	})
	if err := set.Parse(args); err != nil {
		return f, err
	}
	if set.NArg() > 0 {
		return f, fmt.Errorf("unexpected argument %q", set.Arg(0))
	}
	return f, nil
}

// protected reads an address; an empty host and "localhost" stand for the whole
// machine.
func protected(s string) ([]netip.AddrPort, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return nil, err
	}
	switch host {
	case "":
		host = "0.0.0.0"
	case "localhost":
		host = "127.0.0.1"
	}
	p, err := netip.ParseAddrPort(net.JoinHostPort(host, port))
	if err != nil {
		return nil, err
	}
	return []netip.AddrPort{p}, nil
}

// Run is the program: it serves sandboxes until ctx ends.
func Run(ctx context.Context, args []string, _, stderr io.Writer) error {
	f, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := harden(); err != nil {
		return err
	}
	level := slog.LevelInfo
	if f.debug {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
	dir := filepath.Join(f.data, "gateway")
	lock, err := boot.Claim(dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	records := filepath.Join(dir, "egress")
	if err := os.MkdirAll(records, 0o700); err != nil {
		return fmt.Errorf("decision log: %w", err)
	}
	key, err := sealKey(filepath.Join(dir, "seal.key"))
	if err != nil {
		return err
	}
	resolver, err := outbound.NewResolver(f.dns)
	if err != nil {
		return err
	}
	roots, trust, err := outbound.ReadRoots(f.roots)
	if err != nil {
		return err
	}
	id := boot.NewID()
	service := service.New(id, []uint32{0, uint32(os.Geteuid())}, log)
	o := egress.Options{
		Resolver: resolver, Guard: guard.New(f.protect, nil), Roots: roots, Trust: trust, Records: records,
		SealKey: key, Log: log, Stored: service.Stored, Broken: service.Broken,
	}
	end, err := lend(&o, f.control, f.controlToken, log)
	if err != nil {
		return err
	}
	defer end()
	gateway, err := egress.New(o)
	if err != nil {
		return err
	}
	defer gateway.Close()
	socket := filepath.Join(dir, "gateway.sock")
	listener, err := listen(socket)
	if err != nil {
		return err
	}
	if err := boot.Announce(dir, "cofferdam-gateway", id, socket); err != nil {
		listener.Close()
		return err
	}
	log.Info("ready", "boot", id, "socket", socket)
	return service.Serve(ctx, listener, gateway)
}

// harden refuses to hold privileges and gives up the ways to get them. The
// bit that says so belongs to a thread, so the program starts itself once more
// with it set: then all of its threads have it.
func harden() error {
	if os.Geteuid() == 0 || os.Getuid() == 0 {
		return errors.New("must not run as root: start it as the gateway's own user")
	}
	unix.Umask(0o077)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	set, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	if err != nil {
		return fmt.Errorf("no new privileges: %w", err)
	}
	if set == 0 {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("no new privileges: %w", err)
		}
		return fmt.Errorf("start again: %w", unix.Exec("/proc/self/exe", os.Args, os.Environ()))
	}
	// Leased credentials and keys are in memory: no core file, no debugger.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("not dumpable: %w", err)
	}
	return nil
}

// sealKey reads the key, made at the first start.
func sealKey(path string) ([]byte, error) {
	key, err := os.ReadFile(path)
	if err == nil {
		if len(key) != 64 {
			return nil, fmt.Errorf("%s: not a key of 64 digits", path)
		}
		return key, nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("seal key: %w", err)
	}
	raw := make([]byte, 32)
	rand.Read(raw)
	key = []byte(hex.EncodeToString(raw))
	if err := boot.WriteFile(path, key); err != nil {
		return nil, fmt.Errorf("seal key: %w", err)
	}
	return key, nil
}

func listen(path string) (*net.UnixListener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("socket: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, fmt.Errorf("socket: %w", err)
	}
	return l, nil
}
