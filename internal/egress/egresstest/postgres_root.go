//go:build root

package egresstest

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Postgres is a real server of PostgreSQL on loopback, with a cluster of its
// own that is gone with the test. Needs root, since the server refuses to be.
type Postgres struct {
	Port uint16
	t    testing.TB
	bin  string
	dir  string
	user *syscall.Credential
}

// NewPostgres makes and starts one. hba are the lines of pg_hba.conf for
// connections by network; the role postgres may do anything by SQL. Without a
// certificate the server speaks no TLS.
func NewPostgres(t testing.TB, cert *tls.Certificate, hba ...string) *Postgres {
	t.Helper()
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil || len(found) == 0 {
		t.Fatalf("no PostgreSQL beneath /usr/lib/postgresql (apt-get install postgresql): %v", err)
	}
	account, err := user.Lookup("postgres")
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.ParseUint(account.Uid, 10, 32)
	gid, _ := strconv.ParseUint(account.Gid, 10, 32)
	dir, err := os.MkdirTemp("", "postgres")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chown(dir, int(uid), int(gid)); err != nil {
		t.Fatal(err)
	}
	slices.Sort(found)
	p := &Postgres{t: t, bin: found[len(found)-1], dir: dir, user: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	p.run("", "initdb", "-D", dir+"/data", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.Port = uint16(l.Addr().(*net.TCPAddr).Port)
	l.Close()
	config := fmt.Sprintf("listen_addresses = '127.0.0.1'\nport = %d\nunix_socket_directories = '%s'\nfsync = off\nlog_connections = on\nlogging_collector = off\npassword_encryption = 'scram-sha-256'\n", p.Port, dir)
	if cert != nil {
		key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
		if err != nil {
			t.Fatal(err)
		}
		p.write("server.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}))
		p.write("server.key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))
		config += "ssl = on\nssl_cert_file = '" + dir + "/server.crt'\nssl_key_file = '" + dir + "/server.key'\n"
	}
	p.write("data/postgresql.conf", []byte(config))
	p.write("data/pg_hba.conf", []byte("local all postgres trust\n"+strings.Join(hba, "\n")+"\n"))
	p.start()
	return p
}

func (p *Postgres) write(name string, text []byte) {
	p.t.Helper()
	path := filepath.Join(p.dir, name)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Chown(path, int(p.user.Uid), int(p.user.Gid)); err != nil {
		p.t.Fatal(err)
	}
}

func (p *Postgres) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(p.bin, name), args...)
	cmd.Dir = p.dir
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C", "HOME=" + p.dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.user, Setpgid: true}
	return cmd
}

func (p *Postgres) run(in, name string, args ...string) string {
	p.t.Helper()
	cmd := p.command(name, args...)
	cmd.Stdin = strings.NewReader(in)
	out, err := cmd.CombinedOutput()
	if err != nil {
		p.t.Fatalf("%s: %v\n%s", name, err, out)
	}
	return strings.TrimSpace(string(out))
}

// start starts the server and waits until it answers.
func (p *Postgres) start() {
	p.t.Helper()
	log, err := os.Create(filepath.Join(p.dir, "log"))
	if err != nil {
		p.t.Fatal(err)
	}
	defer log.Close()
	server := p.command("postgres", "-D", p.dir+"/data")
	server.Stdout, server.Stderr = log, log
	if err := server.Start(); err != nil {
		p.t.Fatal(err)
	}
	gone := make(chan struct{})
	go func() { _ = server.Wait(); close(gone) }()
	p.t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGINT) // a fast shutdown: sessions are ended
		select {
		case <-gone:
		case <-time.After(20 * time.Second):
			_ = server.Process.Signal(syscall.SIGQUIT)
			<-gone
		}
	})
	deadline := time.Now().Add(30 * time.Second)
	for p.command("pg_isready", "-q", "-h", p.dir, "-p", strconv.Itoa(int(p.Port))).Run() != nil {
		select {
		case <-gone:
			p.t.Fatalf("PostgreSQL ended:\n%s", p.Log())
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("PostgreSQL does not answer:\n%s", p.Log())
		}
	}
}

// SQL runs statements as the role postgres and gives what they print.
func (p *Postgres) SQL(text string) string {
	p.t.Helper()
	return p.run(text, "psql", "-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-h", p.dir, "-p", strconv.Itoa(int(p.Port)), "-U", "postgres", "postgres")
}

// Log is what the server wrote.
func (p *Postgres) Log() string {
	p.t.Helper()
	text, err := os.ReadFile(filepath.Join(p.dir, "log"))
	if err != nil {
		p.t.Fatal(err)
	}
	return string(text)
}

// Connections is how many connections by network the server was asked for.
func (p *Postgres) Connections() int {
	p.t.Helper()
	return strings.Count(p.Log(), "connection received: host=127.0.0.1")
}
