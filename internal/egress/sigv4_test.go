package egress

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/egress/egresstest"
	"github.com/cofferdam/cofferdam/internal/egress/sigv4"
	"github.com/cofferdam/cofferdam/internal/task"
)

const (
	awsStandIn = "AKIAPLACEHOLDERABCDE:placeholderabcdefghijklmnopqrstuvwxyz234"
	awsReal    = "ASIAIOSFODNN7REALKEY:wJalrXUtnFEMI/K7MDENG/bPxRfiCYREALVALUE0:IQoJb3JpZ2luX2VjREALTOKEN=="
)

func awsLease(id, kind string, port uint16) task.Lease {
	return task.Lease{
		ID: id, Credential: "c-" + id, Kind: kind, Placeholder: awsStandIn, Hosts: []string{"ok.test"}, Ports: []uint16{port},
		Settings: map[string]string{task.SettingRegion: "us-east-1", task.SettingServices: "s3,sts"},
	}
}

func TestAWSIsProved(t *testing.T) {
	leases := []task.Lease{awsLease("aws", task.KindAWS, 443), awsLease("web", task.KindAWSWeb, 443)}
	leases[1].Placeholder = "ASIAPLACEHOLDERABCDE:placeholderabcdefghijklmnopqrstuvwxyz234:placeholder-token-of-a-session"
	r := provenRig(t, values{"aws": "AKIAIOSFODNN7REALKEY:wJalrXUtnFEMI/K7MDENG", "web": awsReal}, leases)
	if err := r.gateway.Prove(r.ctx(), testID); err != nil {
		t.Fatal(err)
	}
	bad := provenRig(t, values{"aws": "no keys at all", "web": awsReal}, leases)
	if err := bad.gateway.Prove(bad.ctx(), testID); err == nil || !strings.Contains(err.Error(), "c-aws") {
		t.Errorf("%v", err)
	}
}

// awsMessage is a request as it is signed, on either side.
func awsMessage(r *http.Request, header http.Header) sigv4.Message {
	m := sigv4.Message{Method: r.Method, Host: r.Host, Path: r.URL.EscapedPath(), Query: r.URL.RawQuery, Header: header.Clone(), Length: r.ContentLength}
	if m.Host == "" {
		m.Host = r.URL.Host
	}
	if r.ContentLength >= 0 && len(m.Header["Content-Length"]) == 0 {
		m.Header["Content-Length"] = []string{fmt.Sprint(r.ContentLength)}
	}
	return m
}

// awsSigned signs a request as a program inside does.
func awsSigned(t *testing.T, r *http.Request, service string, body []byte) *http.Request {
	t.Helper()
	keys, err := task.ParseAWSKeys(awsStandIn)
	if err != nil {
		t.Fatal(err)
	}
	stamp := time.Now().UTC().Format("20060102T150405Z")
	r.Header.Set("X-Amz-Date", stamp)
	m := awsMessage(r, r.Header)
	headers := []string{"host"}
	for name := range m.Header {
		if name != "Content-Length" || r.ContentLength > 0 {
			headers = append(headers, strings.ToLower(name))
		}
	}
	slices.Sort(headers)
	scope := fmt.Sprintf("%s/%s/us-east-1/%s/aws4_request", keys.ID, stamp[:8], service)
	m.Header["Authorization"] = []string{"AWS4-HMAC-SHA256 Credential=" + scope + ", SignedHeaders=" + strings.Join(headers, ";") + ", Signature=" + strings.Repeat("0", 64)}
	c, err := sigv4.Parse(m)
	if err != nil {
		t.Fatal(err)
	}
	made, err := c.Sign(m, keys.ID, keys.Secret.Reveal(), "", sigv4.Digest(body), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", made.Authorization)
	return r
}

// awsVerifies answers 200 to what is signed with the real keys and arrives whole.
func awsVerifies(w http.ResponseWriter, r *http.Request) {
	keys, err := task.ParseAWSKeys(awsReal)
	var body []byte
	if err == nil {
		body, err = io.ReadAll(r.Body)
	}
	m := awsMessage(r, r.Header)
	var c *sigv4.Claim
	if err == nil {
		c, err = sigv4.Parse(m)
	}
	if err == nil {
		err = c.Allow(keys.ID, keys.Token.Reveal(), sigv4.Bounds{Regions: []string{"us-east-1"}, Services: []string{"s3", "sts"}}, time.Now())
	}
	if err == nil {
		err = c.Verify(m, keys.Secret.Reveal(), sigv4.Digest(body))
	}
	if err == nil && strings.Contains(strings.ToLower(fmt.Sprint(r.Header, r.URL)), "placeholder") {
		err = fmt.Errorf("a placeholder: %v", r.Header)
	}
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, err)
		return
	}
	fmt.Fprintf(w, "%d", len(body))
}

// What is signed is what is sent, whichever way either side speaks; what is
// altered on the way is refused, and says why.
func TestAWSOverTheWire(t *testing.T) {
	large := bytes.Repeat([]byte("0123456789"), 100_000)
	for _, h2 := range []bool{false, true} {
		authority := egresstest.NewFar(t)
		u := listen(t)
		egresstest.Serve(t, u, authority.Certificate(t, "ok.test", time.Now().Add(time.Hour)), h2, http.HandlerFunc(awsVerifies))
		rig := newRig(t, nil, func(o *Options) { o.Roots, o.Lender = authority.Roots, values{"aws": awsReal} })
		grant := grantOf(task.Rule{ID: "aws", Host: "ok.test", Ports: []uint16{u.port}, Credential: "c-aws", Private: true})
		grant.Leases = []task.Lease{awsLease("aws", task.KindAWS, u.port)}
		if err := rig.gateway.SetGrant(grant); err != nil {
			t.Fatal(err)
		}
		w := &within{rig: rig, port: u.port}
		request := func(method, path string, body []byte, length int64, headers ...string) *http.Request {
			r := w.request(method, w.url(path), nil)
			for i := 0; i < len(headers); i += 2 {
				r.Header.Set(headers[i], headers[i+1])
			}
			if body != nil {
				r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), length
			}
			return r
		}
		trailer := func() []byte {
			var b bytes.Buffer
			fmt.Fprintf(&b, "%x\r\n%s\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n", len(large), large)
			return b.Bytes()
		}()
		size := fmt.Sprint(len(large))
		for _, inside := range []bool{false, true} {
			c := w.inside(inside)
			for name, x := range map[string]struct {
				r    *http.Request
				want string
			}{
				"get": {awsSigned(t, request("GET", "/b/a%20b//c?x=1&acl&a=%2F", nil, 0, "X-Amz-Content-Sha256", sigv4.Digest(nil)), "s3", nil), "200 0"},
				"delete, an empty put": {awsSigned(t, request("PUT", "/b/c", nil, 0, "X-Amz-Content-Sha256", sigv4.Digest(nil), "Accept-Encoding", "identity",
					"User-Agent", "client/1", "Cookie", "a=b; c=d"), "s3", nil), "200 0"},
				"a body that is hashed":    {awsSigned(t, request("POST", "/", large, int64(len(large)), "Content-Type", "text/plain"), "sts", large), "200 " + size},
				"a body of unknown length": {awsSigned(t, request("POST", "/", large, -1, "Content-Type", "text/plain"), "sts", large), "200 " + size},
				"a digest": {
					awsSigned(t, request("PUT", "/b/k", large, int64(len(large)), "X-Amz-Content-Sha256", sigv4.Digest(large), "Expect", "100-continue"), "s3", nil),
					"200 " + size,
				},
				"trailers": {awsSigned(t, request("PUT", "/b/k", trailer, int64(len(trailer)), "X-Amz-Content-Sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
					"X-Amz-Decoded-Content-Length", size, "X-Amz-Trailer", "x-amz-checksum-crc32", "Content-Encoding", "aws-chunked"), "s3", nil), "200 " + fmt.Sprint(len(trailer))},
				"trailers, of unknown length": {awsSigned(t, request("PUT", "/b/k", trailer, -1, "X-Amz-Content-Sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
					"X-Amz-Decoded-Content-Length", size, "X-Amz-Trailer", "x-amz-checksum-crc32", "Content-Encoding", "aws-chunked"), "s3", nil), "200 " + fmt.Sprint(len(trailer))},
				"an altered body": {
					awsSigned(t, request("PUT", "/b/k", append([]byte("x"), large[1:]...), int64(len(large)), "X-Amz-Content-Sha256", sigv4.Digest(large)), "s3", nil),
					"403 digest was signed",
				},
				"an altered body that is hashed": {awsSigned(t, request("POST", "/", append([]byte("x"), large[1:]...), int64(len(large))), "sts", large), "403 signature is not"},
				"a body cut in a chunk": {awsSigned(t, request("PUT", "/b/k", trailer[:500_000], -1, "X-Amz-Content-Sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
					"X-Amz-Decoded-Content-Length", size, "X-Amz-Trailer", "x-amz-checksum-crc32"), "s3", nil), "403 within a chunk"},
				"SigV4a": {request("GET", "/b/k", nil, 0, "Authorization", "AWS4-ECDSA-P256-SHA256 Credential=x"), "403 Signature Version 4a"},
			} {
				status, want, _ := strings.Cut(x.want, " ")
				if res, body := w.do(c, x.r); fmt.Sprint(res.StatusCode) != status || !strings.Contains(body, want) || status == "403" && code(t, body) != task.PolicyCredential {
					t.Errorf("%s, h2 inside %v, outside %v: %d %s, want %s", name, inside, h2, res.StatusCode, body, x.want)
				}
			}
		}
	}
}
