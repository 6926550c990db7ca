// Package sts mints keys of AWS roles at its Security Token Service, for the
// token that says who a run is (AssumeRoleWithWebIdentity). The vault keeps
// nothing for it: AWS trusts our issuer. The keys can't be ended before their
// time, so that is short, and a session policy narrows what they allow.
package sts

import (
	"bytes"
	"cmp"
	"context"
	"encoding/xml"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/cofferdam/cofferdam/internal/credential"
	"github.com/cofferdam/cofferdam/internal/credential/provider"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Runs makes tokens that say who a run is. Implemented by identity/issuer.
type Runs interface {
	Token(ctx context.Context, l task.Lent, audience string) (task.Secret, error)
}

// Minter mints. It implements credential.Minter.
type Minter struct {
	ask  provider.Provider
	runs Runs
}

// New returns a minter that asks by p with the tokens of runs.
func New(p provider.Provider, runs Runs) *Minter { return &Minter{p, runs} }

var unfit = regexp.MustCompile(`[^\w+=,.@-]`)

// Mint implements credential.Minter.
func (m *Minter) Mint(ctx context.Context, c task.Credential, _ task.Secret, l task.Lent) (credential.Minted, error) {
	run, err := m.runs.Token(ctx, l, cmp.Or(c.Settings["audience"], "sts.amazonaws.com"))
	if err != nil {
		return credential.Minted{}, err
	}
	form := url.Values{
		"Action": {"AssumeRoleWithWebIdentity"}, "Version": {"2011-06-15"}, "RoleArn": {c.Settings["role_arn"]},
		"RoleSessionName": {sessionName(l)}, "WebIdentityToken": {run.Reveal()}, "DurationSeconds": {cmp.Or(c.Settings["duration"], "900")},
	}
	if p := c.Settings["policy"]; p != "" {
		form.Set("Policy", p)
	}
	a, err := m.ask.Ask(ctx, provider.Question{
		Credential: c.Name, Method: http.MethodPost, URL: Endpoint(c), Body: form.Encode(), Secrets: []task.Secret{run},
		Header:  http.Header{"Content-Type": {"application/x-www-form-urlencoded; charset=utf-8"}, "Accept": {"text/xml"}},
		Limited: limited,
	})
	if err != nil {
		return credential.Minted{}, err
	}
	if !a.OK() {
		return credential.Minted{}, refused(a)
	}
	keys, expires, ok := parse(a.Body)
	if !ok {
		return credential.Minted{}, a.Garbage("no keys, or keys that can't be such")
	}
	return credential.Minted{Value: keys.Text(), Until: a.Until(expires)}, nil
}

// Revoke implements credential.Minter: there is no way.
func (m *Minter) Revoke(context.Context, task.Credential, task.Secret, task.Secret) error {
	return credential.ErrLasts
}

// Endpoint is where the role's keys are asked for.
func Endpoint(c task.Credential) string {
	if at := c.Settings["sts"]; at != "" {
		return at
	}
	region, _, _ := strings.Cut(c.Settings[task.SettingRegion], ",")
	domain := "amazonaws.com"
	if strings.HasPrefix(region, "cn-") {
		domain = "amazonaws.com.cn"
	}
	return "https://sts." + region + "." + domain + "/"
}

// sessionName is what AWS's own log calls the keys' user: the task and its stage.
func sessionName(l task.Lent) string {
	name := unfit.ReplaceAllString("cofferdam-"+l.Task+"-"+string(l.Stage), "-")
	return name[:min(len(name), 64)]
}

type assumed struct {
	XMLName xml.Name `xml:"AssumeRoleWithWebIdentityResponse"`
	Keys    []struct {
		ID      string `xml:"AccessKeyId"`
		Secret  string `xml:"SecretAccessKey"`
		Token   string `xml:"SessionToken"`
		Expires string `xml:"Expiration"`
	} `xml:"AssumeRoleWithWebIdentityResult>Credentials"`
}

// parse reads STS's answer: one document with one set of keys.
func parse(body []byte) (task.AWSKeys, time.Time, bool) {
	var got assumed
	if !document(body, &got) || len(got.Keys) != 1 {
		return task.AWSKeys{}, time.Time{}, false
	}
	k := got.Keys[0]
	expires, err := time.Parse(time.RFC3339, k.Expires)
	if err != nil || k.Token == "" {
		return task.AWSKeys{}, time.Time{}, false
	}
	keys, err := task.ParseAWSKeys(task.AWSKeys{ID: k.ID, Secret: task.NewSecret(k.Secret), Token: task.NewSecret(k.Token)}.Text().Reveal())
	return keys, expires, err == nil
}

// document reads one XML document strictly: no directives, so no entities of its
// own, and nothing after it.
func document(body []byte, v any) bool {
	if bytes.Contains(body, []byte("<!")) {
		return false
	}
	d := xml.NewDecoder(bytes.NewReader(body))
	if d.Decode(v) != nil {
		return false
	}
	for {
		t, err := d.Token()
		if err == io.EOF { //nolint:errorlint // a decoder's end is io.EOF itself
			return true
		}
		text, blank := t.(xml.CharData)
		if err != nil || !blank || len(bytes.TrimSpace(text)) > 0 {
			return false
		}
	}
}

// fault is an answer of STS that refuses.
type fault struct {
	XMLName xml.Name `xml:"ErrorResponse"`
	Code    string   `xml:"Error>Code"`
	Message string   `xml:"Error>Message"`
}

// limited says whether a refusal only says that it is asked too often.
func limited(a provider.Answer) (bool, time.Duration) {
	var said fault
	return !a.OK() && document(a.Body, &said) && strings.HasPrefix(said.Code, "Throttling"), 0
}

// refused tells what STS says of a refusal. One that is about fetching our keys
// may be gone in a moment.
func refused(a provider.Answer) error {
	var said fault
	if !document(a.Body, &said) {
		return a.Refused("")
	}
	if said.Code == "IDPCommunicationError" {
		return a.Garbage("it could not fetch this installation's public keys; see that the issuer's address answers on the Internet")
	}
	return a.Refused(said.Code + ": " + said.Message)
}
