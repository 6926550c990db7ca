package selftest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
)

// sampleAWS is a request that a program inside signed (AWS Signature Version 4).
// Nil: the lease has no keys.
func sampleAWS(l task.Lease, now time.Time) *http.Request {
	keys, err := task.ParseAWSKeys(l.Placeholder)
	if err != nil {
		return nil
	}
	stamp := now.UTC().Format("20060102T150405Z")
	r := &http.Request{Method: http.MethodGet, URL: &url.URL{Scheme: "https", Host: Host, Path: "/"}, Host: Host, Header: http.Header{
		"X-Amz-Date": {stamp}, "X-Amz-Content-Sha256": {digest("")},
	}}
	r.Header.Set("Authorization", authorization(keys, l, stamp, false))
	return r
}

// authorization is how the sample is signed: it is one request, so that there is
// no need to spell any other.
func authorization(keys task.AWSKeys, l task.Lease, stamp string, token bool) string {
	region, _, _ := strings.Cut(l.Settings[task.SettingRegion], ",")
	service, _, _ := strings.Cut(l.Settings[task.SettingServices], ",")
	day, signed := stamp[:8], "host;x-amz-content-sha256;x-amz-date"
	fields := "host:" + Host + "\nx-amz-content-sha256:" + digest("") + "\nx-amz-date:" + stamp + "\n"
	if token {
		signed += ";x-amz-security-token"
		fields += "x-amz-security-token:" + keys.Token.Reveal() + "\n"
	}
	scope := day + "/" + region + "/" + service + "/aws4_request"
	key := []byte("AWS4" + keys.Secret.Reveal())
	for _, part := range []string{day, region, service, "aws4_request"} {
		key = mac(key, part)
	}
	text := "AWS4-HMAC-SHA256\n" + stamp + "\n" + scope + "\n" + digest("GET\n/\n\n"+fields+"\n"+signed+"\n"+digest(""))
	return "AWS4-HMAC-SHA256 Credential=" + keys.ID + "/" + scope + ", SignedHeaders=" + signed + ", Signature=" + hex.EncodeToString(mac(key, text))
}

// showsAWS says whether the sample arrived signed with the real keys.
func showsAWS(l task.Lease, r *http.Request, value string) bool {
	keys, err := task.ParseAWSKeys(value)
	stamp, auth := r.Header.Values("X-Amz-Date"), r.Header.Values("Authorization")
	if err != nil || len(stamp) != 1 || len(stamp[0]) < 8 || len(auth) != 1 {
		return false
	}
	return auth[0] == authorization(keys, l, stamp[0], !keys.Token.Empty()) && r.Header.Get("X-Amz-Security-Token") == keys.Token.Reveal()
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	_, _ = h.Write([]byte(text)) // a hash never fails
	return h.Sum(nil)
}
