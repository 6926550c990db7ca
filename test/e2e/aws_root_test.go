//go:build root

package e2e

import (
	"bufio"
	"bytes"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/egress/egresstest"
	"github.com/cofferdam/cofferdam/internal/testenv"
)

const (
	awsSecret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYREALVALUE0"
	awsToken  = "IQoJb3JpZ2luX2VjREALTOKEN/with+signs=="
	awsKeys   = "ASIAIOSFODNN7REALKEY:" + awsSecret + ":" + awsToken
)

// awsSaw is one request as the far side tells of it.
type awsSaw struct {
	Method, Host, Path, Why, Service, Payload string
	Presigned, Placeholder                    bool
}

// awsFar is testdata/aws/server.py: it verifies every request with botocore.
type awsFar struct {
	port string
	mu   sync.Mutex
	seen []awsSaw
}

func (f *awsFar) all() []awsSaw {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.seen)
}

// python is a Python with the packages of both sides: no other is on the
// machine's default root.
const python = "/usr/bin/python3"

// awsPackages installs what clients and the server need into a folder, without
// the descriptions of the services that they don't speak to.
func awsPackages(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "packages")
	cmd := exec.Command(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-compile", "--target", dir, "boto3==1.44.8", "awscli==1.46.3")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("pip: %v\n%s", err, out)
	}
	data := filepath.Join(dir, "botocore", "data")
	list, err := os.ReadDir(data)
	if err != nil {
		t.Fatal(err)
	}
	gone := []string{filepath.Join(dir, "awscli", "examples"), filepath.Join(dir, "bin")}
	for _, entry := range list {
		if entry.IsDir() && !slices.Contains([]string{"s3", "sts", "iam"}, entry.Name()) {
			gone = append(gone, filepath.Join(data, entry.Name()))
		}
	}
	for _, path := range gone {
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// serveAWS starts the far side.
func serveAWS(t *testing.T, far *egresstest.Far, packages string) *awsFar {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"s3.test", "bucket.s3.test", "sts.test"} {
		cert := far.Certificate(t, name, time.Now().Add(time.Hour))
		key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
		if err != nil {
			t.Fatal(err)
		}
		text := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})...)
		if err := os.WriteFile(filepath.Join(dir, name+".pem"), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(python, "testdata/aws/server.py", dir)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+packages, "PYTHONDONTWRITEBYTECODE=1", "REAL_KEYS="+awsKeys)
	var trouble bytes.Buffer
	cmd.Stderr = &trouble
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines, f := bufio.NewScanner(out), &awsFar{}
	if lines.Scan() {
		f.port = lines.Text()
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		for lines.Scan() {
			var s awsSaw
			if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
				s.Why = lines.Text()
			}
			f.mu.Lock()
			f.seen = append(f.seen, s)
			f.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		reading.Wait()
		_ = cmd.Wait()
	})
	if f.port == "" {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		t.Fatalf("the far side did not start: %s", trouble.String())
	}
	return f
}

// Programs sign with keys that stand for others; a far side that knows only the
// real ones, and verifies with botocore, takes every request and every chunk, and
// sees none of those that were signed otherwise.
func TestAWSRequestsAreSignedAnew(t *testing.T) {
	packages := awsPackages(t)
	authority := egresstest.NewFar(t)
	far := serveAWS(t, authority, packages)
	roots := filepath.Join(t.TempDir(), "roots.pem")
	if err := os.WriteFile(roots, authority.PEM, 0o644); err != nil {
		t.Fatal(err)
	}
	var private, rules strings.Builder
	hosts := []string{"s3.test", "bucket.s3.test", "sts.test"}
	zone := map[string]string{}
	args := []string{"credential", "add", "aws", "--kind", "aws", "--set", "region=us-east-1", "--set", "services=s3,sts", "--port", far.port}
	for _, h := range hosts {
		zone[h+"."] = "127.0.0.1"
		fmt.Fprintf(&private, "  - {host: %s, ports: [%s]}\n", h, far.port)
		fmt.Fprintf(&rules, "      - {host: %s, ports: [%s], credential: aws}\n", h, far.port)
		args = append(args, "--host", h)
	}
	e := testenv.Start(t, testenv.Config{
		DNS: testenv.Names(t, zone).Addr, Flags: []string{"--roots", roots}, OperatorPolicy: "version: 1\nprivate:\n" + private.String(),
	})
	add := e.Command(args...)
	add.Stdin = strings.NewReader(awsKeys + "\n")
	if out, err := add.CombinedOutput(); err != nil || bytes.Contains(out, []byte(awsSecret)) {
		t.Fatalf("credential add: %v\n%s", err, out)
	}

	script, err := os.ReadFile("testdata/aws/client.py")
	if err != nil {
		t.Fatal(err)
	}
	dir := repo(t, map[string]string{"client.py": string(script)})
	if err := os.CopyFS(filepath.Join(dir, "packages"), os.DirFS(packages)); err != nil {
		t.Fatal(err)
	}
	git(t, dir, "add", "-A", "-f")
	git(t, dir, "commit", "-q", "-m", "what clients need")
	got := run(t, e, api.TaskRequest{
		Repo: bundle(t, e, dir), Policy: "version: 1\nagent:\n  network:\n    allow:\n" + rules.String(),
		Agent: sh("export PYTHONPATH=$PWD/packages PYTHONDONTWRITEBYTECODE=1; env | grep ^AWS; " + python + " client.py " + far.port),
	})
	text := log(t, e, got.ID, "agent")
	must(t, e, got, api.Succeeded, "")
	for name, want := range map[string]string{
		"AWS_ACCESS_KEY_ID=ASIAPLACEHOLDER": "", "AWS_SECRET_ACCESS_KEY=placeholder": "", "AWS_SESSION_TOKEN=placeholder": "", "AWS_REGION=us-east-1": "",
		"put and get: ": "True", "stream: ": "True", "odd key: ": "b'odd'", "virtual host: ": "b'host'", "multipart: ": "True", "list: ": "True",
		"caller: ": "arn:aws:iam::123456789012:user/far", "presigned: ": "odd", "the URL has placeholders: ": "True", "presigned put: ": "b'put by curl'", "presigned caller: ": "True",
		"aws s3 cp: ": "by the aws command line", "aws sts: ": "123456789012", "curl: ": "signed by curl",
		"chunks: ": "200", "chunks and a trailer: ": "200", "chunks came: ": "True",
		// What the gateway says is what botocore prints.
		"another region: ": "403: An error occurred (policy.credential)", "another key: ": "403: An error occurred (policy.credential)",
		"another secret: ":  "403: An error occurred (policy.credential) when calling the ListObjectsV2 operation: the signature is not",
		"another service: ": "403: An error occurred (policy.credential) when calling the ListUsers", "an old date: ": "403: An error occurred (policy.credential)",
		"unsigned: ": "policy.credential the request is not signed", "SigV2: ": "policy.credential Signature Version 2 is not signed anew",
		"SigV4a: ": "policy.credential Signature Version 4a", "a placeholder elsewhere: ": "policy.credential ",
		"an altered URL: ": "policy.credential the signature is not", "another host: ": "policy.credential the signature is not",
		"done": "",
	} {
		if !strings.Contains(text, name+want) {
			t.Errorf("the agent's log has no %q", name+want)
		}
	}
	for _, name := range []string{"an altered chunk: ", "a chunk too few: "} {
		if strings.Contains(text, name+"200") || !strings.Contains(text, name) {
			t.Errorf("%s passed", name)
		}
	}
	seen, kinds := far.all(), map[string]int{}
	for _, s := range seen {
		kinds[s.Payload]++
		if s.Placeholder {
			t.Errorf("a placeholder reached the far side: %+v", s)
		}
		if broken := strings.HasSuffix(s.Path, "/altered") || strings.HasSuffix(s.Path, "/cut"); broken != (s.Why != "") {
			t.Errorf("the far side says %+v", s)
		}
	}
	for _, payload := range []string{
		"STREAMING-UNSIGNED-PAYLOAD-TRAILER", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER", "UNSIGNED-PAYLOAD", "",
	} {
		if kinds[payload] == 0 {
			t.Errorf("no request with a body of the kind %q among %v", payload, kinds)
		}
	}
	if t.Failed() {
		t.Logf("the agent's log:\n%s\nthe far side saw %+v", text, seen)
	}
	export, err := e.CLI("audit", "export")
	if err != nil {
		t.Fatal(err)
	}
	for what, s := range map[string]string{"log": text, "export": export, "logs": e.Logs()} {
		if strings.Contains(s, awsSecret) || strings.Contains(s, awsToken) {
			t.Errorf("%s has the value", what)
		}
	}
	valueNowhere(t, e.Data, awsSecret)
}
