package environ

import (
	"slices"
	"testing"

	"github.com/cofferdam/cofferdam/internal/task"
)

func keys(name, kind, env, placeholder string) task.Lent {
	return task.Lent{Lease: task.Lease{
		Credential: name, Kind: kind, Placeholder: placeholder, Settings: map[string]string{task.SettingRegion: "eu-central-1,us-east-1", task.SettingServices: "s3"},
	}, Env: env}
}

func TestVariablesOfAWS(t *testing.T) {
	lasting := keys("a", task.KindAWS, "", "AKIAPLACEHOLDERAAAAA:placeholdersecret")
	session := keys("b", task.KindAWSWeb, "", "ASIAPLACEHOLDERBBBBB:placeholderother:placeholdertoken")
	region := []string{"AWS_REGION=eu-central-1", "AWS_DEFAULT_REGION=eu-central-1"}
	a := append([]string{"AWS_ACCESS_KEY_ID=AKIAPLACEHOLDERAAAAA", "AWS_SECRET_ACCESS_KEY=placeholdersecret"}, region...)
	b := append([]string{"AWS_ACCESS_KEY_ID=ASIAPLACEHOLDERBBBBB", "AWS_SECRET_ACCESS_KEY=placeholderother", "AWS_SESSION_TOKEN=placeholdertoken"}, region...)
	named := keys("c", task.KindAWS, "DEPLOY", "AKIAPLACEHOLDERCCCCC:placeholderthird")
	c := []string{"DEPLOY_ACCESS_KEY_ID=AKIAPLACEHOLDERCCCCC", "DEPLOY_SECRET_ACCESS_KEY=placeholderthird", "DEPLOY_REGION=eu-central-1", "DEPLOY_DEFAULT_REGION=eu-central-1"}
	for name, x := range map[string]struct {
		lent []task.Lent
		want []string
	}{
		"lasting":             {[]task.Lent{lasting}, a},
		"of a session":        {[]task.Lent{session}, b},
		"never half of each":  {[]task.Lent{lasting, session}, a},
		"a named one besides": {[]task.Lent{lasting, named}, append(slices.Clone(a), c...)},
		"no keys":             {[]task.Lent{keys("d", task.KindAWS, "", "placeholder")}, nil},
	} {
		if got := Of(x.lent, nil); !slices.Equal(got, x.want) {
			t.Errorf("%s:\n%q\nwant\n%q", name, got, x.want)
		}
	}
}
