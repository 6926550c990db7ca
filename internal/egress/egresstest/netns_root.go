//go:build root

package egresstest

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/miekg/dns"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/cofferdam/cofferdam/internal/egress/netstack"
)

// Namespace is a network namespace with a persistent TAP device, as a sandbox
// has it. Needs root.
type Namespace struct {
	t      testing.TB
	handle netns.NsHandle
	resolv string // a resolv.conf that names the gateway
}

// NewNamespace makes a namespace and gives the device's descriptor.
func NewNamespace(t testing.TB) (*Namespace, *os.File) {
	t.Helper()
	n := &Namespace{t: t, resolv: filepath.Join(t.TempDir(), "resolv.conf")}
	if err := os.WriteFile(n.resolv, []byte("nameserver 198.18.0.1\noptions timeout:2 attempts:1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	err := onThread(func() error {
		var err error
		n.handle, err = netns.New()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.handle.Close() })
	var device *os.File
	if err := n.Do(func() error {
		var err error
		if device, err = OpenTAP(); err != nil {
			return err
		}
		return configure()
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { device.Close() })
	return n, device
}

// Reopen opens the persistent device again.
func (n *Namespace) Reopen() (device *os.File, err error) {
	err = n.Do(func() error {
		device, err = OpenTAP()
		return err
	})
	return device, err
}

// OpenTAP opens the device in the calling thread's namespace, made when absent.
func OpenTAP() (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("tun: %w", err)
	}
	var request struct {
		name  [unix.IFNAMSIZ]byte
		flags uint16
		_     [22]byte
	}
	copy(request.name[:], "tap0")
	request.flags = unix.IFF_TAP | unix.IFF_NO_PI
	for _, call := range []struct{ number, argument uintptr }{
		{unix.TUNSETIFF, uintptr(unsafe.Pointer(&request))}, {unix.TUNSETPERSIST, 1},
	} {
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), call.number, call.argument); errno != 0 {
			unix.Close(fd)
			return nil, fmt.Errorf("tap0: %w", errno)
		}
	}
	return os.NewFile(uintptr(fd), "tap0"), nil
}

func configure() error {
	link, err := netlink.LinkByName("tap0")
	if err != nil {
		return err
	}
	var errs []error
	errs = append(errs, netlink.LinkSetMTU(link, netstack.MTU))
	for _, a := range []string{netstack.Inside4().String() + "/30", netstack.Inside6().String() + "/64"} {
		addr, err := netlink.ParseAddr(a)
		if err != nil {
			return err
		}
		addr.Flags = unix.IFA_F_NODAD
		errs = append(errs, netlink.AddrAdd(link, addr))
	}
	errs = append(errs, netlink.LinkSetUp(link))
	for gateway, everything := range map[string]string{netstack.Gateway4().String(): "0.0.0.0/0", netstack.Gateway6().String(): "::/0"} {
		_, dst, _ := net.ParseCIDR(everything)
		errs = append(errs, netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.ParseIP(gateway), Dst: dst}))
	}
	return errors.Join(errs...)
}

// onThread runs do on a thread that is thrown away.
func onThread(do func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		done <- do()
	}()
	return <-done
}

// Do runs do on a thread in the namespace. Sockets made in it stay there.
func (n *Namespace) Do(do func() error) error {
	return onThread(func() error {
		if err := netns.Set(n.handle); err != nil {
			return err
		}
		return do()
	})
}

// Run runs a program in the namespace, with the gateway as its name server.
func (n *Namespace) Run(argv ...string) (string, error) {
	var out []byte
	err := n.Do(func() error {
		script := `mount --make-rprivate / && mount --bind "$0" /etc/resolv.conf && exec "$@"`
		cmd := exec.CommandContext(n.t.Context(), "unshare", append([]string{"-m", "sh", "-c", script, n.resolv}, argv...)...)
		var err error
		out, err = cmd.CombinedOutput()
		return err
	})
	return string(out), err
}

// Lookup asks the gateway for the name's address.
func (n *Namespace) Lookup(name string, kind uint16) (addr netip.Addr, err error) {
	err = n.Do(func() error {
		q := new(dns.Msg)
		q.SetQuestion(dns.Fqdn(name), kind)
		// As every resolver does, ask again: a device that nobody held for a moment
		// drops what is sent just afterwards.
		c := &dns.Client{Timeout: time.Second}
		var reply *dns.Msg
		var err error
		for begun := time.Now(); time.Since(begun) < 15*time.Second; {
			if reply, _, err = c.ExchangeContext(n.t.Context(), q, netip.AddrPortFrom(netstack.Gateway4(), 53).String()); err == nil {
				break
			}
		}
		if err != nil {
			return err
		}
		for _, rr := range reply.Answer {
			switch a := rr.(type) {
			case *dns.A:
				addr, _ = netip.AddrFromSlice(a.A.To4())
			case *dns.AAAA:
				addr, _ = netip.AddrFromSlice(a.AAAA.To16())
			}
		}
		if !addr.IsValid() {
			return fmt.Errorf("%s: %s without an address", name, dns.RcodeToString[reply.Rcode])
		}
		return nil
	})
	return addr, err
}

// Dial looks the name up and connects from inside the namespace.
func (n *Namespace) Dial(name string, port uint16) (conn net.Conn, err error) {
	addr, err := n.Lookup(name, dns.TypeA)
	if err != nil {
		return nil, err
	}
	return n.DialAddr(netip.AddrPortFrom(addr, port))
}

// DialAddr connects to a literal address from inside the namespace.
func (n *Namespace) DialAddr(to netip.AddrPort) (conn net.Conn, err error) {
	err = n.Do(func() error {
		conn, err = net.DialTimeout("tcp", to.String(), 15*time.Second)
		return err
	})
	return conn, err
}
