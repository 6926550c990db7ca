package credential

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/task"
)

func pemText(t *testing.T, kind string, der []byte, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// What can be said of kinds that are minted is judged when they are added.
func TestMintedKinds(t *testing.T) {
	t.Parallel()
	k, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	good := pemText(t, "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(k), nil)
	der, err := x509.MarshalPKCS8PrivateKey(k)
	other := pemText(t, "PRIVATE KEY", der, err)
	e, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err = x509.MarshalPKCS8PrivateKey(e)
	curve := pemText(t, "PRIVATE KEY", der, err)
	app := map[string]string{"app_id": "12345", "installation_id": "42", "repository": "acme/site,acme/docs", "permissions": "contents:write,pull_requests:read"}
	oauth := map[string]string{"token_url": "https://as.example/token", "client_id": "me"}
	exchange := map[string]string{"token_url": "https://as.example/token", "identity": "aud"}
	web := map[string]string{"role_arn": "arn:aws:iam::123456789012:role/deploy", "region": "eu-central-1", "services": "s3"}
	for _, c := range []struct {
		kind, value string
		settings    map[string]string
		set, to     string // one setting that is another
		field       string // that the error names; empty: it is taken
	}{
		{task.KindGitHubApp, good, app, "", "", ""},
		{task.KindGitHubApp, other, app, "app_id", "Iv23liABCDEF", ""},
		{task.KindGitHubApp, good, app, "carry", "git", ""},
		{task.KindGitHubApp, curve, app, "", "", "value"},
		{task.KindGitHubApp, "ghp_notakey0123456789", app, "", "", "value"},
		{task.KindGitHubApp, good + good, app, "", "", "value"},
		{task.KindGitHubApp, good[:len(good)/2], app, "", "", "value"},
		{task.KindGitHubApp, good, app, "repository", "", "settings.repository"},
		{task.KindGitHubApp, good, app, "repository", "acme/*", "settings.repository"},
		{task.KindGitHubApp, good, app, "repository", "acme/site,other/site", "settings.repository"},
		{task.KindGitHubApp, good, app, "repository", "acme/site,Acme/Site", "settings.repository"},
		{task.KindGitHubApp, good, app, "permissions", "", "settings.permissions"},
		{task.KindGitHubApp, good, app, "permissions", "contents", "settings.permissions"},
		{task.KindGitHubApp, good, app, "permissions", "contents:write,contents:read", "settings.permissions"},
		{task.KindGitHubApp, good, app, "installation_id", "../42", "settings.installation_id"},
		{task.KindGitHubApp, good, app, "api", "http://api.github.com", "settings.api"},
		{task.KindGitHubApp, good, app, "carry", "cookie", "settings.carry"},
		{task.KindOAuth, "a secret of it", oauth, "", "", ""},
		{task.KindOAuth, "a secret of it", oauth, "auth", "post", ""},
		{task.KindOAuth, "", oauth, "", "", "value"},
		{task.KindOAuth, "a secret of it", oauth, "token_url", "", "settings.token_url"},
		{task.KindOAuth, "a secret of it", oauth, "token_url", "https://u:p@as.example/token", "settings.token_url"},
		{task.KindOAuth, "a secret of it", oauth, "revoke_url", "https://as.example/r?x", "settings.revoke_url"},
		{task.KindOAuth, "a secret of it", oauth, "auth", "jwt", "settings.auth"},
		{task.KindOAuth, "a secret of it", oauth, "lifetime", "0", "settings.lifetime"},
		{task.KindOAuth, "a secret of it", oauth, "identity", "aud", "settings.identity"},
		{task.KindExchange, "", exchange, "", "", ""},
		{task.KindExchange, "a secret of it", exchange, "client_id", "me", ""},
		{task.KindExchange, "a secret of it", exchange, "", "", "settings.client_id"},
		{task.KindExchange, "", exchange, "identity", "", "settings.identity"},
		{task.KindExchange, "", exchange, "subject_token_type", "jwt", "settings.subject_token_type"},
		{task.KindAWSWeb, "", web, "", "", ""},
		{task.KindAWSWeb, "AKIAEXAMPLE:secretsecret", web, "", "", "value"},
		{task.KindAWSWeb, "", web, "role_arn", "deploy", "settings.role_arn"},
		{task.KindAWSWeb, "", web, "duration", "60", "settings.duration"},
		{task.KindAWSWeb, "", web, "policy", "allow", "settings.policy"},
		{task.KindAWSWeb, "", web, "region", "", "settings.region"},
	} {
		settings := map[string]string{}
		for name, text := range c.settings {
			settings[name] = text
		}
		if c.set != "" {
			settings[c.set] = c.to
		}
		made, err := request(task.CredentialRequest{
			Name: "key", Owner: "alice", Kind: c.kind, Hosts: []string{"api.example.com"}, Settings: settings, Value: task.NewSecret(c.value),
		}).credential()
		if c.field == "" {
			if err != nil {
				t.Errorf("%s, %s=%s: %v", c.kind, c.set, c.to, err)
			} else if p := placeholderOf(made); strings.Contains(p, "PRIVATE") || !strings.Contains(strings.ToLower(p), word) {
				t.Errorf("%s: placeholder %q", c.kind, p)
			}
			continue
		}
		wants(t, err, task.InputInvalid, c.field+":")
		if err != nil && len(c.value) > 40 && strings.Contains(err.Error(), c.value[30:40]) {
			t.Errorf("the error holds the key: %v", err)
		}
	}
}

// Settings of a minted kind that the gateway needs travel with the lease, and no
// other does.
func TestWhatTravelsWithALease(t *testing.T) {
	got := settingsOf(task.Credential{Kind: task.KindGitHubApp, Settings: map[string]string{
		"app_id": "1", "installation_id": "2", "permissions": "contents:read", "api": "https://a.example", "carry": "git", "user": "x-access-token", "repository": "a/b", "push": "no",
	}})
	if len(got) != 4 || got["carry"] != "git" || got["user"] != "x-access-token" || got["repository"] != "a/b" || got["push"] != "no" {
		t.Errorf("%v", got)
	}
	for _, c := range []struct {
		lease task.Lease
		want  string
	}{
		{task.Lease{Kind: task.KindGitHubApp, Settings: got}, task.KindGit},
		{task.Lease{Kind: task.KindGitHubApp}, task.KindHeader},
		{task.Lease{}, task.KindHeader},
		{task.Lease{Kind: task.KindOAuth}, task.KindHeader},
		{task.Lease{Kind: task.KindExchange}, task.KindHeader},
		{task.Lease{Kind: task.KindAWSWeb}, task.KindAWS},
		{task.Lease{Kind: task.KindBasic}, task.KindBasic},
	} {
		if got := c.lease.Carried(); got != c.want {
			t.Errorf("%s is carried as %s", c.lease.Kind, got)
		}
	}
}
