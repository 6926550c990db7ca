package sigv4

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"time"
)

// farLife is how long a presigned request is good for outside, where its URL may
// be written down: as long as any other signature is.
const farLife = Skew

// Digest is what stands for a body that is held whole.
func Digest(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

// Verify compares the claim's signature with the one that the secret makes of
// the message. digest is the body's, where Hashes says so. Errors are *Refusal.
func (c *Claim) Verify(m Message, secret, digest string) error {
	params, err := parseQuery(m.Query)
	if err != nil {
		return err
	}
	key, seen := signingKey(secret, c.scope), map[string]bool{}
	for _, s := range spellings(c.scope.service) {
		text := c.canonical(m, params, c.headers, c.standsFor(digest), s)
		if seen[text] {
			continue
		}
		seen[text] = true
		if same(sign(key, c.stamp, c.scope, text), c.signature) {
			c.spelling = s
			return nil
		}
	}
	return refuse("the signature is not the one that the keys of the environment make of this request")
}

// standsFor is what is signed of the body.
func (c *Claim) standsFor(digest string) string {
	if c.Hashes() {
		return digest
	}
	return c.payload
}

// Signed is what a message has to be sent with so that the new signature is
// that of what is sent.
type Signed struct {
	Query         string
	Authorization string // empty: the header has none
	Token         string // of X-Amz-Security-Token; empty: the header has none
	signature     string
	scope         scope
	stamp         string
}

// Sign signs a message anew whose claim was verified, as it is sent outside:
// after fields that belong to a connection were taken off it. digest is as in
// Verify. What stands in the header is signed for the claim's own time; a
// presigned URL for now and farLife at most, or what is left of it.
func (c *Claim) Sign(m Message, id, secret, token, digest string, now time.Time) (Signed, error) {
	out := Signed{Query: m.Query, scope: c.scope, stamp: c.stamp}
	header := make(map[string][]string, len(m.Header)+1)
	for name, values := range m.Header {
		header[name] = values
	}
	delete(header, "X-Amz-Security-Token")
	if token != "" && !c.presigned {
		header["X-Amz-Security-Token"] = []string{token}
		out.Token = token
	}
	delete(header, "Content-Length")
	if m.Length > 0 || m.Length == 0 && (m.Method == "POST" || m.Method == "PUT" || m.Method == "PATCH") {
		header["Content-Length"] = []string{strconv.FormatInt(m.Length, 10)}
	}
	m.Header = header
	headers := c.outside(m)
	if c.presigned {
		out.stamp = now.UTC().Format(stampForm)
		out.scope.day = out.stamp[:8]
		left := min(c.when.Add(c.expires).Sub(now), farLife)
		out.Query = presign(m.Query, id+"/"+out.scope.String(), out.stamp, max(int64(left/time.Second), 1), headers, token)
	}
	params, err := parseQuery(out.Query)
	if err != nil {
		return Signed{}, err
	}
	text := c.canonical(m, params, headers, c.standsFor(digest), c.spelling)
	out.signature = sign(signingKey(secret, out.scope), out.stamp, out.scope, text)
	if c.presigned {
		out.Query += "&X-Amz-Signature=" + out.signature
		return out, nil
	}
	out.Authorization = algorithm + " Credential=" + id + "/" + out.scope.String() + ", SignedHeaders=" + strings.Join(headers, ";") + ", Signature=" + out.signature
	return out, nil
}

// outside are the headers that are signed of what is sent: those of the claim
// that are still there, and the session's token.
func (c *Claim) outside(m Message) []string {
	var out []string
	for _, h := range c.headers {
		switch h {
		case "connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "expect", "authorization", "x-amz-security-token":
			continue // belongs to the connection, or is set anew
		case "user-agent":
			if len(m.Header["User-Agent"]) != 1 {
				continue
			}
		}
		if _, ok := m.value(h); ok {
			out = append(out, h)
		}
	}
	if len(m.Header["X-Amz-Security-Token"]) > 0 {
		out = append(out, "x-amz-security-token")
		slices.Sort(out)
	}
	return out
}

// presign puts the parameters of a new signature behind what else a query has.
func presign(query, credential, stamp string, seconds int64, headers []string, token string) string {
	var out []string
	if bare, _ := Bare(query); bare != "" { // it was parsed before
		out = append(out, bare)
	}
	out = append(out, "X-Amz-Algorithm="+algorithm, "X-Amz-Credential="+escape(credential, false), "X-Amz-Date="+stamp,
		"X-Amz-Expires="+strconv.FormatInt(seconds, 10), "X-Amz-SignedHeaders="+escape(strings.Join(headers, ";"), false))
	if token != "" {
		out = append(out, "X-Amz-Security-Token="+escape(token, false))
	}
	return strings.Join(out, "&")
}

func signingKey(secret string, s scope) []byte {
	key := mac([]byte("AWS4"+secret), s.day)
	for _, part := range []string{s.region, s.service, terminal} {
		key = mac(key, part)
	}
	return key
}

// sign signs a canonical request.
func sign(key []byte, stamp string, s scope, canonical string) string {
	sum := sha256.Sum256([]byte(canonical))
	return hex.EncodeToString(mac(key, algorithm+"\n"+stamp+"\n"+s.String()+"\n"+hex.EncodeToString(sum[:])))
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	_, _ = h.Write([]byte(text)) // a hash never fails
	return h.Sum(nil)
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
