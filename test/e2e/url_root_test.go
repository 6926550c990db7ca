//go:build root

package e2e

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/testenv"
)

// A repository named by an https URL is cloned inside the sandbox through the
// gateway, which splices the connection after its SNI check; the requester's
// naming it opens that host to the checkout stage and to no other. The server
// is git's own, with a certificate that the machine trusts.
func TestCloneByURL(t *testing.T) {
	served := t.TempDir()
	git(t, served, "clone", "-q", "--bare", small(t), "repo.git")
	cert, authority := certificate(t, "git.test")
	port, hits := gitServer(t, served, cert)
	e := testenv.Start(t, testenv.Config{
		DNS:            testenv.Names(t, map[string]string{"git.test.": "127.0.0.1"}).Addr,
		OperatorPolicy: fmt.Sprintf("version: 1\nprivate:\n  - {host: git.test, ports: [%d]}\n", port),
		Within:         trusting(t, authority),
	})
	url := fmt.Sprintf("https://git.test:%d/repo.git", port)
	got := run(t, e, api.TaskRequest{
		Repo: api.Repo{URL: url}, Verify: "./check.sh",
		Agent: sh(fmt.Sprintf("echo 42 > answer.txt; curl -s -m 10 https://git.test:%d/ && echo LEAK; git remote -v; git config --list --local", port)),
	})
	must(t, e, got, api.Succeeded, "")
	if want := git(t, served, "--git-dir", "repo.git", "rev-parse", "HEAD"); got.Commit != want {
		t.Errorf("commit %q, want %q", got.Commit, want)
	}
	if text := log(t, e, got.ID, "agent"); strings.Contains(text, "LEAK") || strings.Contains(text, "git.test") {
		t.Errorf("the agent's stage says %q", text)
	}
	if hits() == 0 {
		t.Error("the server saw no clone")
	}
	t.Run("submodule", func(t *testing.T) { cloneSubmodule(t, e, served, port) })
	for name, repo := range map[string]api.Repo{
		"no such repository": {URL: fmt.Sprintf("https://git.test:%d/other.git", port)},
		"no such ref":        {URL: url, Ref: "nowhere"},
	} {
		t.Run(name, func(t *testing.T) {
			must(t, e, run(t, e, api.TaskRequest{Repo: repo, Agent: sh("true")}), api.Failed, "checkout.failed")
		})
	}
}

// A submodule of the same host is fetched with the repository, and verify has it
// without the network; one of a host that checkout may not reach is an empty
// folder, and the task says so.
func cloneSubmodule(t *testing.T, e *testenv.Env, served string, port int) {
	part := repo(t, map[string]string{"part.txt": "part\n"})
	whole := repo(t, map[string]string{"answer.txt": "41\n"})
	for path, host := range map[string]string{"sub": "git.test", "gone": "elsewhere.test"} {
		git(t, whole, "-c", "protocol.file.allow=always", "submodule", "add", "-q", part, path)
		git(t, whole, "config", "-f", ".gitmodules", "submodule."+path+".url", fmt.Sprintf("https://%s:%d/part.git", host, port))
	}
	git(t, whole, "commit", "-qam", "submodules")
	for name, dir := range map[string]string{"part": part, "whole": whole} {
		git(t, served, "clone", "-q", "--bare", dir, name+".git")
	}
	const check = `test "$(cat sub/part.txt)" = part && test -z "$(ls gone)" && test "$(git -C sub rev-parse HEAD)" != ""`
	got := run(t, e, api.TaskRequest{
		Repo:  api.Repo{URL: fmt.Sprintf("https://git.test:%d/whole.git", port)},
		Agent: sh(check + ` && git submodule status && echo 42 > answer.txt`), Verify: `test "$(cat answer.txt)" = 42 && test "$(cat sub/part.txt)" = part`,
	})
	must(t, e, got, api.Succeeded, "")
	if text := testenv.Stage(got, "checkout").Text; !strings.Contains(text, "1 submodules are empty") {
		t.Errorf("checkout says %q", text)
	}
	if patch := string(output(t, e, got.ID, "patch")); !strings.Contains(patch, "+42") || strings.Contains(patch, "sub") || strings.Contains(patch, "gone") {
		t.Errorf("the patch is\n%s", patch)
	}
}

// gitServer serves the bare repositories in dir by git's own http-backend.
func gitServer(t *testing.T, dir string, cert tls.Certificate) (port int, hits func() int) {
	t.Helper()
	out, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	backend := &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(out)), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"},
	}
	seen := make(chan struct{}, 1000)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			seen <- struct{}{}
			backend.ServeHTTP(w, r)
		}),
	}
	go srv.ServeTLS(l, "", "")
	t.Cleanup(func() { srv.Close() })
	return l.Addr().(*net.TCPAddr).Port, func() int { return len(seen) }
}

// certificate makes an authority and a certificate of its for the name.
func certificate(t *testing.T, name string) (tls.Certificate, []byte) {
	t.Helper()
	make := func(template, parent *x509.Certificate, signer *ecdsa.PrivateKey) ([]byte, *ecdsa.PrivateKey) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if signer == nil {
			signer = key
		}
		der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
		if err != nil {
			t.Fatal(err)
		}
		return der, key
	}
	from, until := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, NotBefore: from, NotAfter: until,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, rootKey := make(root, root, nil)
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotBefore: from, NotAfter: until,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	leafDER, key := make(leaf, root, rootKey)
	return tls.Certificate{Certificate: [][]byte{leafDER}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// trusting starts a program on a machine that trusts the authority as well: in
// a mount namespace of its own with another bundle.
func trusting(t *testing.T, authority []byte) []string {
	t.Helper()
	const bundle = "/etc/ssl/certs/ca-certificates.crt"
	text, err := os.ReadFile(bundle)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(open(t), "bundle.crt")
	if err := os.WriteFile(file, bytes.Join([][]byte{text, authority}, []byte("\n")), 0o644); err != nil {
		t.Fatal(err)
	}
	return []string{"unshare", "--mount", "--propagation", "private", "sh", "-c", `mount --bind "$1" ` + bundle + ` && shift && exec "$@"`, "sh", file}
}
