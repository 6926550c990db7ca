package sts

import (
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/task"
)

const answer = `<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult><Credentials>` +
	`<AccessKeyId>ASIAEXAMPLEEXAMPLE42</AccessKeyId><SecretAccessKey>secret/access+key0</SecretAccessKey><SessionToken>session-token-of-a-role</SessionToken>` +
	`<Expiration>2026-11-30T15:00:00Z</Expiration></Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`

func TestParse(t *testing.T) {
	keys, expires, ok := parse([]byte(answer))
	if !ok || keys.ID != "ASIAEXAMPLEEXAMPLE42" || keys.Secret.Reveal() != "secret/access+key0" || keys.Token.Reveal() != "session-token-of-a-role" || expires.Year() != 2026 {
		t.Fatalf("%+v, %v, %v", keys, expires, ok)
	}
	credentials := answer[strings.Index(answer, "<Credentials>") : strings.Index(answer, "</Credentials>")+len("</Credentials>")]
	for name, text := range map[string]string{
		"nothing":            "",
		"another document":   "<ErrorResponse/>",
		"two sets of keys":   strings.Replace(answer, "<Credentials>", credentials+"<Credentials>", 1),
		"more after it":      answer + "<x/>",
		"text after it":      answer + "x",
		"cut":                answer[:len(answer)-10],
		"a directive":        `<!DOCTYPE x>` + answer,
		"a line break":       strings.Replace(answer, "session-token", "session\ntoken", 1),
		"a colon":            strings.Replace(answer, "secret/", "secret:", 1),
		"no session token":   strings.Replace(answer, "session-token-of-a-role", "", 1),
		"keys that last":     strings.Replace(answer, "ASIA", "AKIA", 1),
		"no time":            strings.Replace(answer, "2026-11-30T15:00:00Z", "soon", 1),
		"elements elsewhere": strings.ReplaceAll(answer, "AssumeRoleWithWebIdentityResult>", "Other>"),
	} {
		if _, _, ok := parse([]byte(text)); ok {
			t.Errorf("%s: taken", name)
		}
	}
}

func TestEndpointAndSession(t *testing.T) {
	for region, want := range map[string]string{
		"eu-central-1": "https://sts.eu-central-1.amazonaws.com/", "us-east-1,eu-west-1": "https://sts.us-east-1.amazonaws.com/", "cn-north-1": "https://sts.cn-north-1.amazonaws.com.cn/",
	} {
		if got := Endpoint(task.Credential{Settings: map[string]string{"region": region}}); got != want {
			t.Errorf("%s: %s", region, got)
		}
	}
	if got := Endpoint(task.Credential{Settings: map[string]string{"region": "x", "sts": "https://sts.corp.example/"}}); got != "https://sts.corp.example/" {
		t.Error(got)
	}
	if got := sessionName(task.Lent{Task: "t-abc/" + strings.Repeat("x", 100), Stage: task.Agent}); len(got) != 64 || strings.Contains(got, "/") {
		t.Error(got)
	}
}

// FuzzParse: whatever STS answers, keys that are taken can be carried.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{answer, answer + "<x/>", "<!DOCTYPE x [<!ENTITY e 'a'>]>" + answer, "", "<a>", strings.Replace(answer, "ASIA", "AKIA", 1)} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		keys, _, ok := parse(body)
		if !ok {
			return
		}
		for _, c := range []byte(keys.Text().Reveal()) {
			if c <= ' ' || c >= 0x7f {
				t.Errorf("taken: %q", keys.Text().Reveal())
			}
		}
		if keys.Token.Empty() {
			t.Error("keys that last were taken")
		}
	})
}
