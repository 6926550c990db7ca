package environ

import (
	"strings"

	"github.com/cofferdam/cofferdam/internal/task"
)

// aws are the variables that AWS's SDKs and tools read ("Environment variables",
// AWS SDKs and Tools Reference Guide). With a variable of the credential's choice
// that stands in the place of AWS, such as DEPLOY_ACCESS_KEY_ID, so that a stage
// can have several.
func aws(l task.Lent, first bool) []variable {
	keys, err := task.ParseAWSKeys(l.Placeholder)
	if err != nil || l.Env == "" && !first {
		return nil
	}
	prefix := "AWS"
	if l.Env != "" {
		prefix = l.Env
	}
	env := []variable{{prefix + "_ACCESS_KEY_ID", keys.ID}, {prefix + "_SECRET_ACCESS_KEY", keys.Secret.Reveal()}}
	if !keys.Token.Empty() {
		env = append(env, variable{prefix + "_SESSION_TOKEN", keys.Token.Reveal()})
	}
	if region, _, _ := strings.Cut(l.Settings[task.SettingRegion], ","); region != "" {
		env = append(env, variable{prefix + "_REGION", region}, variable{prefix + "_DEFAULT_REGION", region})
	}
	return env
}
