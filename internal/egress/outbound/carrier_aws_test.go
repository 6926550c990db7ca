package outbound

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/egress/sigv4"
	"github.com/cofferdam/cofferdam/internal/task"
)

const (
	awsStandIn = "AKIAPLACEHOLDERABCDE:placeholderabcdefghijklmnopqrstuvwxyz234"
	awsReal    = "ASIAIOSFODNN7REALKEY:wJalrXUtnFEMI/K7MDENG/bPxRfiCYREALVALUE0:IQoJb3JpZ2luX2VjREALTOKEN=="
)

func awsGate() *Gate {
	g := gateOf(task.Lease{Kind: task.KindAWS, Settings: map[string]string{"region": "us-east-1", "services": "s3,sts"}})
	g.Grant.Leases[0].Placeholder = awsStandIn
	return g
}

// signs signs a request with keys, as a client of the service does: by way of
// the package that signs anew, from a claim that names them.
func signs(t *testing.T, r *http.Request, text, service string, body []byte) *http.Request {
	t.Helper()
	keys, err := task.ParseAWSKeys(text)
	if err != nil {
		t.Fatal(err)
	}
	stamp := time.Now().UTC().Format("20060102T150405Z")
	r.Header.Set("X-Amz-Date", stamp)
	headers := []string{"host"}
	for name := range r.Header {
		if strings.HasPrefix(name, "X-Amz-") {
			headers = append(headers, strings.ToLower(name))
		}
	}
	slices.Sort(headers)
	r.Header.Set("Authorization", fmt.Sprintf("AWS4-HMAC-SHA256 Credential=%s/%s/us-east-1/%s/aws4_request, SignedHeaders=%s, Signature=%s",
		keys.ID, stamp[:8], service, strings.Join(headers, ";"), strings.Repeat("0", 64)))
	m := messageOf(r, r.Header)
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

// verified says whether what goes out is signed with the real keys.
func verified(out *http.Request, body []byte) error {
	keys, err := task.ParseAWSKeys(awsReal)
	if err != nil {
		return err
	}
	m := messageOf(out, out.Header)
	c, err := sigv4.Parse(m)
	if err != nil {
		return err
	}
	if err := c.Allow(keys.ID, keys.Token.Reveal(), sigv4.Bounds{Regions: []string{"us-east-1"}, Services: []string{"s3", "sts"}}, time.Now()); err != nil {
		return err
	}
	return c.Verify(m, keys.Secret.Reveal(), sigv4.Digest(body))
}

func TestAWS(t *testing.T) {
	body := []byte("Action=GetCallerIdentity&Version=2011-06-15")
	post := func() *http.Request {
		r := request("POST", "/")
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		return signs(t, r, awsStandIn, "sts", body)
	}
	get := func() *http.Request {
		return signs(t, request("GET", "/bucket/a%20key?versionId=1", "X-Amz-Content-Sha256", sigv4.Digest(nil)), awsStandIn, "s3", nil)
	}
	g := awsGate()
	for name, x := range map[string]struct {
		r    *http.Request
		body []byte
	}{"get": {get(), nil}, "post": {post(), body}} {
		out := sent(t, g, x.r, awsReal)
		if out == nil {
			t.Errorf("%s: refused", name)
			continue
		}
		if err := verified(out, x.body); err != nil || out.Header.Get("X-Amz-Security-Token") == "" {
			t.Errorf("%s: %v %v", name, err, out.Header)
		}
		if text := fmt.Sprint(out.Header, out.URL); strings.Contains(strings.ToLower(text), "placeholder") {
			t.Errorf("%s: a placeholder goes out: %s", name, text)
		}
		if x.body != nil {
			if got, err := io.ReadAll(out.Body); err != nil || !bytes.Equal(got, body) || out.ContentLength != int64(len(body)) {
				t.Errorf("%s: the body is %q, %v", name, got, err)
			}
		}
	}
	for name, x := range map[string]struct {
		r   *http.Request
		why string
	}{
		"not signed":                      {request("GET", "/bucket/key"), "not signed"},
		"altered body":                    {func() *http.Request { r := post(); r.Body = io.NopCloser(strings.NewReader("Action=Other")); return r }(), "signature is not"},
		"a body that is too large":        {func() *http.Request { r := post(); r.ContentLength = maxHashed + 1; return r }(), "larger than 8 MiB"},
		"altered path":                    {func() *http.Request { r := get(); r.URL.Path, r.URL.RawPath = "/bucket/b", ""; return r }(), "signature is not"},
		"altered host":                    {func() *http.Request { r := get(); r.Host = lentHost + ":443"; return r }(), "signature is not"},
		"another secret":                  {signs(t, request("GET", "/"), "AKIAPLACEHOLDERABCDE:not-the-placeholder", "s3", nil), "signature is not"},
		"another key":                     {signs(t, request("GET", "/"), "AKIAIOSFODNN7MYOWN00:not-the-placeholder", "s3", nil), "another access key"},
		"another service":                 {signs(t, request("GET", "/"), awsStandIn, "iam", nil), `service "iam"`},
		"SigV4a":                          {request("GET", "/", "Authorization", "AWS4-ECDSA-P256-SHA256 Credential=x"), "4a"},
		"SigV2":                           {request("GET", "/", "Authorization", "AWS AKIAPLACEHOLDERABCDE:x"), "Version 2"},
		"another key beside it":           {func() *http.Request { r := get(); r.Header["X-Api-Key"] = []string{"mine"}; return r }(), "beside the signature"},
		"a placeholder in another header": {func() *http.Request { r := get(); r.Header["X-Note"] = []string{"AKIAPLACEHOLDERABCDE"}; return r }(), ""},
		"a placeholder in the path":       {signs(t, request("GET", "/placeholderabcdefghijklmnopqrstuvwxyz234"), awsStandIn, "s3", nil), ""},
	} {
		pass := g.Judge(x.r)
		if pass.Allowed() || pass.Decision.Reason != task.PolicyCredential || !strings.Contains(pass.Why(), x.why) {
			t.Errorf("%s: %+v", name, pass)
		}
		if loan, reason := g.Lend(context.Background(), one{awsReal}, pass); reason == task.ReasonNone || loan.carrier != nil {
			t.Errorf("%s: lent", name)
		}
	}
	// The placeholder of one credential is refused where another one is lent.
	other := gateOf(task.Lease{Kind: task.KindHeader, Header: "X-Api-Key"})
	other.Grant.Leases = append(other.Grant.Leases, task.Lease{ID: "l-b", Credential: "d", Kind: task.KindAWSWeb, Placeholder: awsStandIn})
	if sent(t, other, request("GET", "/", "X-Note", "AKIAPLACEHOLDERABCDE"), "sk-real") != nil {
		t.Error("a placeholder of keys passes in a header")
	}
}

// A budget for bodies holds for those that are hashed too, and is given back.
func TestAWSBodiesAreBounded(t *testing.T) {
	body := bytes.Repeat([]byte("a"), 3*bodyStep)
	post := func(g *Gate) Pass {
		r := request("POST", "/")
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		return g.Judge(signs(t, r, awsStandIn, "sts", body))
	}
	g := awsGate()
	g.Bodies = NewBodies(6 * bodyStep)
	first := post(g)
	if second := post(g); !first.Allowed() || second.Allowed() {
		t.Errorf("%v and %v", first.Decision, second.Decision)
	}
	first.Release()
	if third := post(g); !third.Allowed() {
		t.Errorf("after it was given back: %s", third.Why())
	}
}

// Chunks that are altered on the way are broken off, never ended.
func TestAWSChunksAreBrokenOff(t *testing.T) {
	const head = "5;chunk-signature="
	zero := strings.Repeat("0", 64)
	body := head + zero + "\r\nhello\r\n0;chunk-signature=" + zero + "\r\n\r\n"
	r := request("PUT", "/bucket/key", "X-Amz-Content-Sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "X-Amz-Decoded-Content-Length", "5")
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	out := sent(t, awsGate(), signs(t, r, awsStandIn, "s3", nil), awsReal)
	if out == nil || out.ContentLength != int64(len(body)) || verified(out, nil) != nil {
		t.Fatalf("%+v", out)
	}
	if got, err := io.ReadAll(out.Body); len(got) != 0 || Why(err) == "" {
		t.Errorf("%q, %v", got, err)
	}
	r = request("PUT", "/bucket/key", "X-Amz-Content-Sha256", sigv4.Digest([]byte("hello")))
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader("hellx")), 5
	if out = sent(t, awsGate(), signs(t, r, awsStandIn, "s3", nil), awsReal); out == nil {
		t.Fatal("refused")
	}
	got, err := io.ReadAll(out.Body)
	if len(got) == 5 || Fault(fmt.Errorf("broken: %w", err)) != task.PolicyCredential || Why(err) == "" {
		t.Errorf("%q, %v", got, err)
	}
}

// An answer that repeats the keys gives what stands for them.
func TestAWSAnswers(t *testing.T) {
	token := strings.Split(awsReal, ":")[2]
	l := &task.Lease{Kind: task.KindAWS, Placeholder: awsStandIn}
	res := &http.Response{Header: http.Header{"Location": {"https://b.test/?X-Amz-Credential=ASIAIOSFODNN7REALKEY%2Fx&X-Amz-Security-Token=" + strings.ReplaceAll(token, "=", "%3D")}}, Body: http.NoBody}
	loan := Loan{lease: l, carrier: awsCarrier{}, value: task.NewSecret(awsReal)}
	if err := loan.Returned(res); err != nil || strings.Contains(res.Header.Get("Location"), "REAL") || !strings.Contains(res.Header.Get("Location"), "AKIAPLACEHOLDERABCDE%2F") {
		t.Errorf("%v %v", res.Header, err)
	}
	res.Body, res.Header = io.NopCloser(strings.NewReader("<Id>ASIAIOSFODNN7REALKEY</Id><T>"+token+"</T>wJalrXUtnFEMI/K7MDENG/bPxRfiCYREALVALUE0")), http.Header{"X-Echo": {token}}
	if err := loan.answered(res); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(res.Body); err != nil || strings.Contains(string(text)+res.Header.Get("X-Echo"), "REAL") {
		t.Errorf("%s %v %v", text, res.Header, err)
	}
	if s := fmt.Sprintf("%+v %#v", loan, loan); strings.Contains(s, "REAL") || strings.Contains(s, hex.EncodeToString([]byte(token))) {
		t.Errorf("prints as %s", s)
	}
}
