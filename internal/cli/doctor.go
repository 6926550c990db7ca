package cli

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/cofferdam/cofferdam/internal/cli/doctor"
)

func (a *app) doctorCmd() *cobra.Command {
	return doctor.Command(doctor.Host{
		Interruptible: interruptible, Ask: a.ask,
		Data: func() string {
			conf, err := a.configuration()
			if err != nil {
				return ""
			}
			return conf.Data
		},
		Named: func() bool { return a.config != "" || os.Getenv("COFFERDAM_URL") != "" },
		Use:   func(file string) { a.config = file },
		JSON:  func() bool { return a.json }, Print: func(v any) error { return printJSON(a.Out, v) },
		Describe: describe, Failed: func(code int) error { return &exitError{code} },
		URL: func() string {
			conf, err := a.configuration()
			if err != nil {
				return ""
			}
			return conf.URL
		},
		Usage: usage, Out: a.Out, Err: a.Err,
	})
}
