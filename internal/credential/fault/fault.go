// Package fault says what is wrong with the settings of credentials, each in a
// short text that goes on after the setting's name; empty: nothing. None of it
// tells any of a secret.
package fault

import (
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// MaxAppKey bounds the text of an App's private key.
const MaxAppKey = 8 << 10

var (
	appPattern        = regexp.MustCompile(`^([0-9]{1,18}|Iv[A-Za-z0-9.]{4,60})$`)
	digitsPattern     = regexp.MustCompile(`^[0-9]{1,18}$`)
	ownPattern        = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,38}/[A-Za-z0-9._-]{1,100}$`)
	permissionPattern = regexp.MustCompile(`^[a-z][a-z_]{0,63}:(read|write|admin)$`)
	rolePattern       = regexp.MustCompile(`^arn:aws[a-z-]*:iam::[0-9]{12}:role/[\w+=,.@/-]{1,512}$`)
)

// App judges an App's id.
func App(text string) string {
	if !appPattern.MatchString(text) {
		return "must be an App's id, or its client id (Iv…)"
	}
	return ""
}

// Digits judges a number.
func Digits(text string) string {
	if !digitsPattern.MatchString(text) {
		return "must be a number"
	}
	return ""
}

// OwnRepositories judges the repositories of one account.
func OwnRepositories(text string) string {
	owner := ""
	list := strings.Split(text, ",")
	for i, one := range list {
		if !ownPattern.MatchString(one) || strings.HasSuffix(one, ".git") {
			return "must be repositories as owner/name, separated by commas without spaces; a token is never made for all of them"
		}
		of, _, _ := strings.Cut(one, "/")
		if owner != "" && !strings.EqualFold(owner, of) {
			return "must be of one owner: an installation has one"
		}
		if slices.ContainsFunc(list[:i], func(other string) bool { return strings.EqualFold(other, one) }) {
			return "names a repository twice"
		}
		owner = of
	}
	return ""
}

// Permissions judges the permissions of an App's token.
func Permissions(text string) string {
	seen := map[string]bool{}
	for one := range strings.SplitSeq(text, ",") {
		name, _, _ := strings.Cut(one, ":")
		if !permissionPattern.MatchString(one) || seen[name] {
			return "must be such as contents:write,pull_requests:read, each once"
		}
		seen[name] = true
	}
	return ""
}

// Endpoint judges an address that a secret is sent to.
func Endpoint(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.ForceQuery || strings.Contains(text, "#") {
		return "must be an https URL without user, query and fragment"
	}
	return ""
}

// URI judges a URI.
func URI(text string) string {
	if u, err := url.Parse(text); err != nil || !u.IsAbs() || strings.Contains(text, "#") {
		return "must be an absolute URI"
	}
	return ""
}

// Lifetime judges a lifetime in seconds.
func Lifetime(text string) string {
	if n, err := strconv.Atoi(text); err != nil || n < 30 || n > 86400 {
		return "must be 30 to 86400 seconds: how long a token lasts whose server does not say so"
	}
	return ""
}

// Role judges a role of AWS.
func Role(text string) string {
	if !rolePattern.MatchString(text) {
		return "must be a role such as arn:aws:iam::123456789012:role/name"
	}
	return ""
}

// Duration judges how long keys of AWS last.
func Duration(text string) string {
	if n, err := strconv.Atoi(text); err != nil || n < 900 || n > 43200 {
		return "must be 900 to 43200 seconds; keys can't be ended before, so take the least"
	}
	return ""
}

// JSON judges a policy as JSON.
func JSON(text string) string {
	if !json.Valid([]byte(text)) || !strings.HasPrefix(strings.TrimSpace(text), "{") {
		return "must be a policy as JSON"
	}
	return ""
}

// AppKey says what is wrong with an App's private key without telling any
// of it. It goes into no header, so it has its line breaks.
func AppKey(value string) string {
	if len(value) > MaxAppKey {
		return fmt.Sprintf("longer than %d bytes", MaxAppKey)
	}
	block, rest := pem.Decode([]byte(value))
	if block == nil || strings.TrimSpace(string(rest)) != "" {
		return "is not an App's private key: one PEM block, as GitHub gave it"
	}
	k, err := x509.ParsePKCS1PrivateKey(block.Bytes)
	if err != nil {
		if other, oerr := x509.ParsePKCS8PrivateKey(block.Bytes); oerr == nil {
			k, _ = other.(*rsa.PrivateKey)
		}
	}
	if k == nil {
		return "is not an RSA private key that can be read"
	}
	if k.N.BitLen() < 2048 {
		return "is an RSA key of less than 2048 bits"
	}
	return ""
}

// Folder judges the path of a folder on the control plane's machine.
func Folder(text string) string {
	if !path.IsAbs(text) || path.Clean(text) != text || text == "/" {
		return "must be the absolute path of the tool's folder on the control plane's machine, such as /home/alice/.claude"
	}
	return ""
}

// Account judges the id of an account, which stands in a header.
func Account(text string) string {
	for _, c := range []byte(text) {
		if c <= ' ' || c >= 0x7f {
			return "must be the account's id, as tokens.account_id in auth.json says it"
		}
	}
	return ""
}
