package credential

import (
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cofferdam/cofferdam/internal/task"
)

// githubAppKind is installation tokens of a GitHub App, minted a lease and
// narrowed. The vault keeps the App's private key, which is never put into a
// request.
func githubAppKind() kind {
	return kind{
		name: task.KindGitHubApp, header: true, minted: true, fault: appKeyFault,
		settings: carried(map[string]setting{
			"app_id":               {required: true, fault: appFault},
			"installation_id":      {required: true, fault: digitsFault},
			task.SettingRepository: {required: true, lent: true, fault: ownRepositoriesFault},
			"permissions":          {required: true, fault: permissionsFault},
			"api":                  {preset: "https://api.github.com", fault: endpointFault},
		}),
		placeholder: func(task.Credential) string { return newPlaceholder("ghs_") },
	}
}

// oauthKind is access tokens of an OAuth 2.0 client's own account. The vault
// keeps the client's secret.
func oauthKind() kind {
	settings := oauthSettings()
	settings["client_id"] = setting{required: true}
	return kind{name: task.KindOAuth, header: true, minted: true, fault: valueFault, settings: settings}
}

// exchangeKind is access tokens in exchange for the run's own token (RFC 8693).
// The vault keeps the client's secret, where the server asks for one.
func exchangeKind() kind {
	settings := oauthSettings()
	settings["client_id"] = setting{}
	settings["identity"] = setting{required: true, fault: task.AudienceFault}
	settings["subject_token_type"] = setting{preset: "urn:ietf:params:oauth:token-type:jwt", fault: uriFault}
	settings["requested_token_type"] = setting{preset: "urn:ietf:params:oauth:token-type:access_token", fault: uriFault}
	return kind{
		name: task.KindExchange, header: true, minted: true, settings: settings,
		fault: func(value string) string {
			if value == "" {
				return ""
			}
			return valueFault(value)
		},
		whole: func(r request) error {
			if !r.Value.Empty() && r.Settings["client_id"] == "" {
				return invalid("settings.client_id", "is missing: a client's secret says nothing without the client's name")
			}
			return nil
		},
	}
}

// awsWebKind is keys of an AWS role, for the run's own token. The vault keeps
// nothing.
func awsWebKind() kind {
	settings := awsKind().settings
	settings["role_arn"] = setting{required: true, fault: roleFault}
	settings[task.SettingAudience] = setting{preset: "sts.amazonaws.com", fault: task.AudienceFault}
	settings["duration"] = setting{preset: "900", fault: durationFault}
	settings["policy"] = setting{fault: jsonFault}
	settings["sts"] = setting{fault: endpointFault}
	return kind{
		name: task.KindAWSWeb, minted: true, fault: noValueFault, settings: settings,
		placeholder: func(task.Credential) string { return awsPlaceholder(true) },
	}
}

func oauthSettings() map[string]setting {
	return carried(map[string]setting{
		"token_url":  {required: true, fault: endpointFault},
		"revoke_url": {fault: endpointFault},
		"auth": {preset: "basic", fault: func(text string) string {
			if text != "basic" && text != "post" {
				return "must be basic or post: how the client shows its secret (client_secret_basic, client_secret_post)"
			}
			return ""
		}},
		"scope":              {},
		task.SettingAudience: {},
		"resource":           {fault: uriFault},
		"lifetime":           {fault: lifetimeFault},
	})
}

// carried adds the settings that say how requests carry what is minted.
func carried(settings map[string]setting) map[string]setting {
	settings[task.SettingCarry] = setting{lent: true, preset: task.CarryHeader, fault: func(text string) string {
		if text != task.CarryHeader && text != task.CarryGit {
			return "must be header or git"
		}
		return ""
	}}
	for name, s := range gitKind().settings {
		if _, own := settings[name]; !own {
			settings[name] = s
		}
	}
	return settings
}

var (
	appPattern        = regexp.MustCompile(`^([0-9]{1,18}|Iv[A-Za-z0-9.]{4,60})$`)
	digitsPattern     = regexp.MustCompile(`^[0-9]{1,18}$`)
	ownPattern        = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,38}/[A-Za-z0-9._-]{1,100}$`)
	permissionPattern = regexp.MustCompile(`^[a-z][a-z_]{0,63}:(read|write|admin)$`)
	rolePattern       = regexp.MustCompile(`^arn:aws[a-z-]*:iam::[0-9]{12}:role/[\w+=,.@/-]{1,512}$`)
)

func appFault(text string) string {
	if !appPattern.MatchString(text) {
		return "must be an App's id, or its client id (Iv…)"
	}
	return ""
}

func digitsFault(text string) string {
	if !digitsPattern.MatchString(text) {
		return "must be a number"
	}
	return ""
}

// ownRepositoriesFault judges the repositories of one account.
func ownRepositoriesFault(text string) string {
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

func permissionsFault(text string) string {
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

func endpointFault(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.ForceQuery || strings.Contains(text, "#") {
		return "must be an https URL without user, query and fragment"
	}
	return ""
}

func uriFault(text string) string {
	if u, err := url.Parse(text); err != nil || !u.IsAbs() || strings.Contains(text, "#") {
		return "must be an absolute URI"
	}
	return ""
}

func lifetimeFault(text string) string {
	if n, err := strconv.Atoi(text); err != nil || n < 30 || n > 86400 {
		return "must be 30 to 86400 seconds: how long a token lasts whose server does not say so"
	}
	return ""
}

func roleFault(text string) string {
	if !rolePattern.MatchString(text) {
		return "must be a role such as arn:aws:iam::123456789012:role/name"
	}
	return ""
}

func durationFault(text string) string {
	if n, err := strconv.Atoi(text); err != nil || n < 900 || n > 43200 {
		return "must be 900 to 43200 seconds; keys can't be ended before, so take the least"
	}
	return ""
}

func jsonFault(text string) string {
	if !json.Valid([]byte(text)) || !strings.HasPrefix(strings.TrimSpace(text), "{") {
		return "must be a policy as JSON"
	}
	return ""
}

// appKeyFault says what is wrong with an App's private key without telling any
// of it. It goes into no header, so it has its line breaks.
func appKeyFault(value string) string {
	if len(value) > maxValue {
		return fmt.Sprintf("longer than %d bytes", maxValue)
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
