package task

import "strings"

// Reserved is the zone of names that the gateway answers itself. Nothing beneath
// it is ever looked up or dialled, whatever a rule says.
const Reserved = "cofferdam.internal"

// Where a stage asks for a token of its run's identity, and the variables that
// say so: the names that toolkits written for GitHub Actions read.
const (
	TokenHost   = "run." + Reserved
	TokenPath   = "/token"
	TokenURL    = "https://" + TokenHost + TokenPath + "?v=1" // toolkits append "&audience="
	TokenURLEnv = "ACTIONS_ID_TOKEN_REQUEST_URL"
	TokenEnv    = "ACTIONS_ID_TOKEN_REQUEST_TOKEN"
)

// Settings of leases of KindOIDC.
const (
	SettingAudience = "audience"
	SettingVisible  = "visible" // "true": a stage may see the token; only of leases that policy gives
)

// identityPrefix begins the names of leases that policy gives. No credential of
// the vault can have such a name.
const identityPrefix = "identity:"

// Identity lets a stage have tokens that say who its run is, for one audience.
type Identity struct {
	Audience string `json:"audience"`
	Visible  bool   `json:"visible,omitempty"` // the stage may ask for one and see it
}

// Name is what a lease of it is called where credentials are named.
func (i Identity) Name() string { return identityPrefix + i.Audience }

// OfIdentity says whether the lease was given by policy, with no credential of
// the vault behind it.
func (l Lease) OfIdentity() bool {
	return l.Kind == KindOIDC && l.Credential == identityPrefix+l.Settings[SettingAudience]
}

// HandsOver says for which audience the lease lets its stage see tokens; ok is
// false for every other lease.
func (l Lease) HandsOver() (audience string, ok bool) {
	if !l.OfIdentity() || l.Settings[SettingVisible] != "true" {
		return "", false
	}
	return l.Settings[SettingAudience], true
}

// IsReserved says whether the gateway answers for the name itself. name is
// lower-case and without a dot at its end.
func IsReserved(name string) bool {
	return name == Reserved || strings.HasSuffix(name, "."+Reserved)
}

// MaxAudience bounds an audience.
const MaxAudience = 255

// AudienceFault says why a text can't be an audience; empty: it can.
func AudienceFault(text string) string {
	if text == "" || len(text) > MaxAudience {
		return "must have 1 to 255 characters"
	}
	for _, c := range []byte(text) {
		if c <= ' ' || c >= 0x7f || c == '"' || c == '\\' {
			return "must be printable ASCII without spaces, quotes and backslashes"
		}
	}
	return ""
}
