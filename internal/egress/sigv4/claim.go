package sigv4

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Message is a request's line and header, as they are sent.
type Message struct {
	Method string
	Host   string              // Host or :authority, with its port where it has one
	Path   string              // escaped, without the query; never empty
	Query  string              // escaped, without the question mark
	Header map[string][]string // by canonical name
	Length int64               // of the body; -1: not known
}

// Refusal says why a message or a body must not pass. Its text is for the
// program that sent it and holds no key.
type Refusal struct{ text string }

// Error gives the text.
func (r *Refusal) Error() string { return r.text }

func refuse(format string, args ...any) error { return &Refusal{fmt.Sprintf(format, args...)} }

const (
	algorithm = "AWS4-HMAC-SHA256"
	terminal  = "aws4_request"
	stampForm = "20060102T150405Z"

	maxSigned  = 64 // header fields
	maxExpires = 7 * 24 * time.Hour
	// Skew is how far a signature's time may be from ours, as at AWS.
	Skew = 15 * time.Minute
)

// Claim is what a message says of its signature.
type Claim struct {
	presigned bool
	id        string
	scope     scope
	stamp     string // of the time, as it is signed
	when      time.Time
	expires   time.Duration // of a presigned one
	headers   []string      // that are signed: lower case, sorted
	signature string
	token     string // of the session; empty: none
	payload   string // what stands for the body's digest; empty: it must be computed
	spelling  spelling
}

// scope is what a signature is for.
type scope struct{ day, region, service string }

func (s scope) String() string {
	return s.day + "/" + s.region + "/" + s.service + "/" + terminal
}

// Parse reads the claim of a message, strictly. Errors are *Refusal.
func Parse(m Message) (*Claim, error) {
	params, err := parseQuery(m.Query)
	if err != nil {
		return nil, err
	}
	inQuery := slices.ContainsFunc(params, func(p param) bool { return claims(p.name) })
	fields := m.Header["Authorization"]
	var c *Claim
	switch {
	case len(fields) > 1, len(fields) == 1 && inQuery:
		return nil, refuse("the request is signed twice: sign it in one Authorization header or in the query")
	case len(fields) == 1:
		c, err = parseHeader(m, fields[0])
	case inQuery:
		c, err = parsePresigned(m, params)
	case slices.ContainsFunc(params, func(p param) bool { return p.name == "AWSAccessKeyId" }):
		return nil, refuse("the URL is presigned with Signature Version 2; presign it with Signature Version 4 (%s)", algorithm)
	default:
		return nil, refuse("the request is not signed; sign it with Signature Version 4 (%s), with the keys of the environment", algorithm)
	}
	if err != nil {
		return nil, err
	}
	c.spelling = spellings(c.scope.service)[0]
	if err := c.readPayload(m, params); err != nil {
		return nil, err
	}
	return c, c.covers(m)
}

// claims says whether a parameter belongs to a signature. Servers may read it in
// any case.
func claims(name string) bool {
	switch strings.ToLower(name) {
	case "x-amz-algorithm", "x-amz-credential", "x-amz-date", "x-amz-expires", "x-amz-signedheaders", "x-amz-signature", "x-amz-security-token":
		return true
	}
	return false
}

// known refuses every way to sign but one.
func known(name string) error {
	switch {
	case name == algorithm:
		return nil
	case name == "AWS4-ECDSA-P256-SHA256":
		return refuse("Signature Version 4a (%s) is not signed anew here; set the client to Signature Version 4 and one region", name)
	case name == "AWS":
		return refuse("Signature Version 2 is not signed anew here; set the client to Signature Version 4 (%s)", algorithm)
	}
	return refuse("the request is not signed with %s", algorithm)
}

// parseHeader reads an Authorization header.
func parseHeader(m Message, field string) (*Claim, error) {
	name, rest, _ := strings.Cut(field, " ")
	if err := known(name); err != nil {
		return nil, err
	}
	parts := map[string]string{}
	for part := range strings.SplitSeq(rest, ",") {
		key, value, ok := strings.Cut(strings.Trim(part, " \t"), "=")
		if _, twice := parts[key]; !ok || twice || value == "" {
			return nil, refuse("the Authorization header can't be read")
		}
		parts[key] = value
	}
	if len(parts) != 3 || parts["Credential"] == "" || parts["SignedHeaders"] == "" || parts["Signature"] == "" {
		return nil, refuse("the Authorization header must have Credential, SignedHeaders and Signature, and nothing else")
	}
	c := &Claim{}
	if err := c.read(parts["Credential"], parts["SignedHeaders"], parts["Signature"]); err != nil {
		return nil, err
	}
	if tokens := m.Header["X-Amz-Security-Token"]; len(tokens) > 1 {
		return nil, refuse("X-Amz-Security-Token stands twice")
	} else if len(tokens) == 1 {
		c.token = tokens[0]
	}
	return c, c.readDate(m)
}

// readDate reads when a message was signed that is not presigned.
func (c *Claim) readDate(m Message) error {
	name, form := "X-Amz-Date", stampForm
	values := m.Header[name]
	if len(values) == 0 {
		name, form = "Date", "Mon, 02 Jan 2006 15:04:05 GMT"
		values = m.Header[name]
	}
	if len(values) != 1 {
		return refuse("the request must have one X-Amz-Date header")
	}
	when, err := time.Parse(form, values[0])
	if err != nil || when.Format(form) != values[0] {
		return refuse("the header %s is no time of the form %s", name, form)
	}
	if name == "Date" && !slices.Contains(c.headers, "date") {
		return refuse("the header Date is not signed")
	}
	c.when, c.stamp = when, when.Format(stampForm)
	return nil
}

// parsePresigned reads the parameters of a presigned URL.
func parsePresigned(m Message, params []param) (*Claim, error) {
	if len(m.Header["X-Amz-Security-Token"]) > 0 {
		return nil, refuse("the session token of a presigned URL stands in its query")
	}
	parts := map[string]string{}
	for _, p := range params {
		if !claims(p.name) {
			continue
		}
		if _, twice := parts[p.name]; twice || !strings.HasPrefix(p.name, "X-Amz-") {
			return nil, refuse("the parameter %s stands twice or is not spelled as usual", p.name)
		}
		parts[p.name] = p.value
	}
	if err := known(parts["X-Amz-Algorithm"]); err != nil {
		return nil, err
	}
	c := &Claim{presigned: true, token: parts["X-Amz-Security-Token"], stamp: parts["X-Amz-Date"]}
	if err := c.read(parts["X-Amz-Credential"], parts["X-Amz-SignedHeaders"], parts["X-Amz-Signature"]); err != nil {
		return nil, err
	}
	seconds, ok := decimal(parts["X-Amz-Expires"], int64(maxExpires/time.Second))
	if !ok || seconds < 1 {
		return nil, refuse("X-Amz-Expires must be 1 to %d", maxExpires/time.Second)
	}
	when, err := time.Parse(stampForm, c.stamp)
	if err != nil || when.Format(stampForm) != c.stamp {
		return nil, refuse("X-Amz-Date is no time of the form %s", stampForm)
	}
	c.when, c.expires = when, time.Duration(seconds)*time.Second
	return c, nil
}

// read reads what both forms have.
func (c *Claim) read(credential, headers, signature string) error {
	parts := strings.Split(credential, "/")
	if len(parts) != 5 || parts[4] != terminal || slices.Contains(parts, "") {
		return refuse("the credential must be ID/DAY/REGION/SERVICE/%s", terminal)
	}
	c.id, c.scope = parts[0], scope{parts[1], parts[2], parts[3]}
	for _, s := range parts {
		if !all(s, func(b byte) bool { return b > ' ' && b < 0x7f }) {
			return refuse("the credential has characters that none has")
		}
	}
	if len(signature) != 64 || !all(signature, isHex) {
		return refuse("the signature must be 64 digits of lower-case hexadecimal")
	}
	c.signature = signature
	c.headers = strings.Split(headers, ";")
	if len(c.headers) > maxSigned {
		return refuse("more than %d headers are signed", maxSigned)
	}
	for i, h := range c.headers {
		if h == "" || !all(h, isFieldName) || i > 0 && c.headers[i-1] >= h {
			return refuse("the signed headers must be names in lower case, sorted, each once")
		}
	}
	return nil
}

// covers says whether the signature covers what it must.
func (c *Claim) covers(m Message) error {
	if !slices.Contains(c.headers, "host") {
		return refuse("the header host is not signed")
	}
	for name := range m.Header {
		lower := strings.ToLower(name)
		if strings.HasPrefix(strings.ReplaceAll(lower, "_", "-"), "x-amz-") && !slices.Contains(c.headers, lower) {
			return refuse("the header %s is not signed; every x-amz header must be", lower)
		}
	}
	for _, h := range c.headers {
		if _, ok := m.value(h); !ok {
			return refuse("the header %s is signed, but the request has none", h)
		}
	}
	return nil
}

// Bounds are what a lease lends signatures for.
type Bounds struct{ Regions, Services []string }

// Allow says whether the claim is of the keys that stand in for others, within
// the bounds, and of this time. Errors are *Refusal.
func (c *Claim) Allow(id, token string, b Bounds, now time.Time) error {
	switch {
	case c.id != id:
		return refuse("the request is signed with another access key than the one of this credential")
	case c.token != "" && c.token != token:
		return refuse("the session token is not the one of this credential")
	case !slices.Contains(b.Services, c.scope.service):
		return refuse("the credential is not lent for the service %q", clip(c.scope.service))
	case !slices.Contains(b.Regions, c.scope.region):
		return refuse("the credential is not lent for the region %q", clip(c.scope.region))
	case c.scope.day != c.stamp[:8]:
		return refuse("the credential's day is not that of the request")
	case c.when.After(now.Add(Skew)):
		return refuse("the request was signed for a time to come; it is %s now", now.UTC().Format(stampForm))
	case c.presigned && now.After(c.when.Add(c.expires)):
		return refuse("the presigned URL has expired; it is %s now", now.UTC().Format(stampForm))
	case !c.presigned && c.when.Before(now.Add(-Skew)):
		return refuse("the request was signed too long ago; it is %s now", now.UTC().Format(stampForm))
	}
	return nil
}

// decimal reads digits without sign, up to most.
func decimal(s string, most int64) (int64, bool) {
	if s == "" || len(s) > 18 {
		return 0, false
	}
	n := int64(0)
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = n*10 + int64(s[i]-'0')
	}
	return n, n <= most
}

func clip(s string) string { return s[:min(len(s), 64)] }

func isHex(b byte) bool { return b >= '0' && b <= '9' || b >= 'a' && b <= 'f' }

// isFieldName says whether a field's name in lower case may have the byte
// (RFC 9110 §5.6.2).
func isFieldName(b byte) bool {
	return b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || strings.IndexByte("!#$%&'*+-.^_`|~", b) >= 0
}

func all(s string, ok func(byte) bool) bool {
	for i := range len(s) {
		if !ok(s[i]) {
			return false
		}
	}
	return true
}
