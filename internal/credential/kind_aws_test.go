package credential

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/task"
)

const awsReal = "AKIAIOSFODNN7REALKEY:wJalrXUtnFEMI/K7MDENG/bPxRfiCYREALVALUE0"

func askAWS(r *task.CredentialRequest) {
	r.Kind, r.Header, r.Env, r.Hosts = task.KindAWS, "", "", []string{"s3.us-east-1.amazonaws.com", "*.s3.us-east-1.amazonaws.com"}
	r.Settings = map[string]string{"region": "us-east-1", "services": "s3,sts"}
	r.Value = task.NewSecret(awsReal)
}

func TestKindAWS(t *testing.T) {
	r := newRig(t)
	r.add(askAWS)
	u := use(r.task("alice"), task.Agent)
	l := r.lend(u, "key")[0]
	keys, err := task.ParseAWSKeys(l.Placeholder)
	if err != nil || !regexp.MustCompile(`^AKIAPLACEHOLDER[A-Z2-7]{5}$`).MatchString(keys.ID) || !keys.Token.Empty() {
		t.Errorf("placeholder %q, %v", l.Placeholder, err)
	}
	if s := keys.Secret.Reveal(); !strings.HasPrefix(s, word) || len(s) != 40 {
		t.Errorf("placeholder of the secret %q", s)
	}
	if l.Kind != task.KindAWS || l.Settings["region"] != "us-east-1" || l.Settings["services"] != "s3,sts" {
		t.Errorf("the lease says %v", l.Settings)
	}
	got, err := r.leases.Value(t.Context(), u.Sandbox, l.ID)
	if text := fmt.Sprint(l, got); err != nil || strings.Contains(text+r.export(), "wJalr") {
		t.Errorf("%s, %v", text, err)
	}
	if temporary, err := task.ParseAWSKeys(awsPlaceholder(true)); err != nil || !strings.HasPrefix(temporary.ID, "ASIAPLACEHOLDER") || !strings.HasPrefix(temporary.Token.Reveal(), word) {
		t.Errorf("the placeholder of temporary keys: %v", err)
	}
	if awsKeysFault(l.Placeholder) == "" {
		t.Error("a placeholder was taken for keys")
	}
}

func TestKindAWSRefuses(t *testing.T) {
	r := newRig(t)
	for text, change := range map[string]func(*task.CredentialRequest){
		"settings.region: is missing":              func(r *task.CredentialRequest) { delete(r.Settings, "region") },
		"settings.services: is missing":            func(r *task.CredentialRequest) { delete(r.Settings, "services") },
		"settings.region: must name each":          func(r *task.CredentialRequest) { r.Settings["region"] = "*" },
		"settings.services: must name each":        func(r *task.CredentialRequest) { r.Settings["services"] = "s3,*" },
		"settings.services: has a name":            func(r *task.CredentialRequest) { r.Settings["services"] = "s3,,sts" },
		`settings.services: "S3" must`:             func(r *task.CredentialRequest) { r.Settings["services"] = "S3" },
		`settings.region: " us-east-1" must`:       func(r *task.CredentialRequest) { r.Settings["region"] = "eu-west-1, us-east-1" },
		"settings.profile: kind aws knows no such": func(r *task.CredentialRequest) { r.Settings["profile"] = "x" },
		"header: a credential of kind aws":         func(r *task.CredentialRequest) { r.Header = "X-Api-Key" },
		"value: must be ID:SECRET":                 func(r *task.CredentialRequest) { r.Value = task.NewSecret("sk-REALVALUE-alone") },
		"value: has temporary keys":                func(r *task.CredentialRequest) { r.Value = task.NewSecret("ASIAIOSFODNN7REALKEY:wJalrXUtnREALVALUE") },
		"value: is a placeholder":                  func(r *task.CredentialRequest) { r.Value = task.NewSecret(awsPlaceholder(true)) },
		"hosts: none":                              func(r *task.CredentialRequest) { r.Hosts = nil },
	} {
		req := ask("key")
		askAWS(&req)
		change(&req)
		_, err := r.leases.Add(t.Context(), req, "admin")
		wants(t, err, task.InputInvalid, text)
	}
}
