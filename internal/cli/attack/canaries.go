package attack

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cofferdam/cofferdam/internal/attack"
)

// canaries are what this command puts on the machine for nobody to reach: listeners,
// Unix sockets and files. What reaches a listener is kept by the id it says.
type canaries struct {
	nonce    string
	tcp, udp int
	dir      string
	files    []string
	socket   string
	abstract string
	hosts    []string
	closers  []func() error

	mu   sync.Mutex
	hits map[string]string
}

// newCanaries starts them. port is that of the listeners; 0: a free one.
func newCanaries(port int) (c *canaries, err error) {
	c = &canaries{nonce: strings.ToLower(rand.Text()), hits: map[string]string{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	l, err := net.Listen("tcp", ":"+strconv.Itoa(port))
	if err != nil {
		return c, fmt.Errorf("the listener that nothing inside may reach: %w", err)
	}
	c.tcp = l.Addr().(*net.TCPAddr).Port
	c.serve(l)
	u, err := net.ListenPacket("udp", ":"+strconv.Itoa(c.tcp))
	if err != nil {
		return c, fmt.Errorf("the listener that nothing inside may reach: %w", err)
	}
	c.udp = c.tcp
	c.closers = append(c.closers, u.Close)
	go c.datagrams(u)
	if c.dir, err = os.MkdirTemp("/var/tmp", "cofferdam-attack-"); err != nil {
		return c, err
	}
	c.closers = append(c.closers, func() error { return os.RemoveAll(c.dir) })
	// Everybody of this machine may read it, so that only the sandbox's walls keep it.
	file := filepath.Join(c.dir, "canary")
	if err = errors.Join(os.Chmod(c.dir, 0o755), os.WriteFile(file, []byte("canary "+c.nonce+"\n"), 0o644)); err != nil { //nolint:gosec // G306: see above
		return c, err
	}
	c.files, c.socket, c.abstract = []string{file}, filepath.Join(c.dir, "socket"), "cofferdam-attack-"+c.nonce
	for _, name := range []string{c.socket, "@" + c.abstract} {
		s, err := net.Listen("unix", name)
		if err != nil {
			return c, err
		}
		c.serve(s)
	}
	if err = os.Chmod(c.socket, 0o777); err != nil { //nolint:gosec // G302: see above
		return c, err
	}
	return c, c.find()
}

// find lists the addresses on which the listener is reached from this machine.
func (c *canaries) find() error {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return err
	}
	for _, a := range addrs {
		ip, ok := a.(*net.IPNet)
		if !ok || ip.IP.IsLoopback() || ip.IP.IsLinkLocalUnicast() {
			continue
		}
		if conn, err := net.DialTimeout("tcp", net.JoinHostPort(ip.IP.String(), strconv.Itoa(c.tcp)), time.Second); err == nil {
			conn.Close()
			c.hosts = append(c.hosts, ip.IP.String())
		}
	}
	return nil
}

func (c *canaries) serve(l net.Listener) {
	c.closers = append(c.closers, l.Close)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
				b := make([]byte, 2048)
				n, _ := conn.Read(b)
				c.note(string(b[:n]), conn.LocalAddr().String())
				_, _ = conn.Write([]byte("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nreached " + c.nonce))
			}()
		}
	}()
}

func (c *canaries) datagrams(u net.PacketConn) {
	b := make([]byte, 4096)
	for {
		n, from, err := u.ReadFrom(b)
		if err != nil {
			return
		}
		c.note(string(b[:n]), u.LocalAddr().String())
		_, _ = u.WriteTo([]byte("reached "+c.nonce), from)
	}
}

// note keeps that a check got here; its mark is the nonce, a slash and its id.
func (c *canaries) note(said, at string) {
	_, rest, ok := strings.Cut(said, c.nonce+"/")
	if !ok {
		return
	}
	end := strings.IndexFunc(rest, func(r rune) bool { return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '.') })
	if end >= 0 {
		rest = rest[:end]
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hits[rest] = at
}

// correct makes a check that reached a canary fall, whatever was said inside.
func (c *canaries) correct(r *attack.Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at, ok := c.hits[r.ID]; ok {
		r.Outcome, r.Happened = attack.Fell, "it reached the machine's listener at "+at
	}
}

func (c *canaries) close() error {
	var errs []error
	for _, f := range c.closers {
		if err := f(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
