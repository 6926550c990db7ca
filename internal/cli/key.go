package cli

import (
	"github.com/spf13/cobra"

	"github.com/cofferdam/cofferdam/internal/cli/keys"
	"github.com/cofferdam/cofferdam/internal/supervise"
)

func (a *app) keyCmd() *cobra.Command {
	return group("key", "Tell the installation's keys and make them anew", keys.Commands(keys.Host{
		Host: a.host(), Save: a.saveToken, Renew: supervise.Renew, Renewable: supervise.Renewable,
	})...)
}

// saveToken keeps a new token in the file that the old one was read from.
func (a *app) saveToken(token string) error {
	conf, err := a.configuration()
	if err != nil {
		return err
	}
	file, path, err := a.configurationFile()
	if err != nil {
		return err
	}
	if file.URL != conf.URL || file.Token != conf.Token {
		return usage("it came from COFFERDAM_TOKEN")
	}
	return supervise.SaveToken(path, token)
}
