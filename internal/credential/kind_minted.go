package credential

import (
	"github.com/cofferdam/cofferdam/internal/credential/fault"
	"github.com/cofferdam/cofferdam/internal/task"
)

// githubAppKind is installation tokens of a GitHub App, minted a lease and
// narrowed. The vault keeps the App's private key, which is never put into a
// request.
func githubAppKind() kind {
	return kind{
		name: task.KindGitHubApp, header: true, minted: true, fault: fault.AppKey,
		settings: carried(map[string]setting{
			"app_id":               {required: true, fault: fault.App},
			"installation_id":      {required: true, fault: fault.Digits},
			task.SettingRepository: {required: true, lent: true, fault: fault.OwnRepositories},
			"permissions":          {required: true, fault: fault.Permissions},
			"api":                  {preset: "https://api.github.com", fault: fault.Endpoint},
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
	settings["subject_token_type"] = setting{preset: "urn:ietf:params:oauth:token-type:jwt", fault: fault.URI}
	settings["requested_token_type"] = setting{preset: "urn:ietf:params:oauth:token-type:access_token", fault: fault.URI}
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
	settings["role_arn"] = setting{required: true, fault: fault.Role}
	settings[task.SettingAudience] = setting{preset: "sts.amazonaws.com", fault: task.AudienceFault}
	settings["duration"] = setting{preset: "900", fault: fault.Duration}
	settings["policy"] = setting{fault: fault.JSON}
	settings["sts"] = setting{fault: fault.Endpoint}
	return kind{
		name: task.KindAWSWeb, minted: true, fault: noValueFault, settings: settings,
		placeholder: func(task.Credential) string { return awsPlaceholder(true) },
	}
}

func oauthSettings() map[string]setting {
	return carried(map[string]setting{
		"token_url":  {required: true, fault: fault.Endpoint},
		"revoke_url": {fault: fault.Endpoint},
		"auth": {preset: "basic", fault: func(text string) string {
			if text != "basic" && text != "post" {
				return "must be basic or post: how the client shows its secret (client_secret_basic, client_secret_post)"
			}
			return ""
		}},
		"scope":              {},
		task.SettingAudience: {},
		"resource":           {fault: fault.URI},
		"lifetime":           {fault: fault.Lifetime},
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
