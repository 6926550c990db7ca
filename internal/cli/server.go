package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/client"
	"github.com/cofferdam/cofferdam/internal/cli/host"
	"github.com/cofferdam/cofferdam/internal/supervise"
)

const (
	shortPatience = 3 * time.Second // with a server that does not answer at all
	longPatience  = 2 * time.Minute // with one that went away while work is in flight
)

// configuration finds the server's URL and the token. The token of a file is
// for the file's server: it is never sent to one that the environment names.
func (a *app) configuration() (supervise.ClientConfig, error) {
	env := supervise.ClientConfig{URL: os.Getenv("COFFERDAM_URL"), Token: os.Getenv("COFFERDAM_TOKEN")}
	if env.URL != "" && env.Token != "" && a.config == "" {
		return env, nil
	}
	conf, path, err := a.configurationFile()
	if err != nil {
		return conf, err
	}
	if a.config != "" {
		return conf, nil
	}
	if env.URL != "" && env.URL != conf.URL {
		return conf, usage("COFFERDAM_URL names %s, and there is no token for it; set COFFERDAM_TOKEN as well", env.URL)
	}
	if env.Token != "" {
		conf.Token = env.Token
	}
	if conf.URL == "" {
		return conf, problem("infra.control_plane_away", "no server is known: %s does not exist; start one with `sudo cofferdam up`, or set COFFERDAM_URL and COFFERDAM_TOKEN", path)
	}
	return conf, nil
}

// configurationFile reads the first of the files that exists; path is the one
// that was expected.
func (a *app) configurationFile() (conf supervise.ClientConfig, path string, err error) {
	var files []string
	if a.config != "" {
		files = []string{a.config}
	} else {
		if dir, err := os.UserConfigDir(); err == nil {
			files = append(files, filepath.Join(dir, "cofferdam", "client.json"))
		}
		files = append(files, filepath.Join(supervise.DefaultData, "client.json"))
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if a.config == "" && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission)) {
			continue
		}
		if err != nil {
			return conf, file, usage("configuration: %v", err)
		}
		if err := json.Unmarshal(data, &conf); err != nil {
			return conf, file, usage("configuration %s: %v", file, err)
		}
		if conf.URL == "" {
			return conf, file, usage("configuration %s: has no url", file)
		}
		return conf, file, nil
	}
	return conf, files[0], nil
}

// client returns a client for one short question.
func (a *app) client() (*client.Client, error) { return a.clientWith(shortPatience) }

func (a *app) clientWith(patience time.Duration) (*client.Client, error) {
	conf, err := a.configuration()
	if err != nil {
		return nil, err
	}
	c, err := client.New(conf.URL, conf.Token, client.WithPatience(patience))
	if err != nil {
		return nil, usage("%v", err)
	}
	return c, nil
}

// connected returns a client for work that takes time. The server must answer
// soon at first; later it is waited for, should it be restarted.
func (a *app) connected(ctx context.Context) (*client.Client, error) {
	probe, err := a.client()
	if err != nil {
		return nil, err
	}
	if _, err := probe.Health(ctx); err != nil {
		return nil, a.away(err)
	}
	return a.clientWith(longPatience)
}

// away says what to do when the server could not be reached.
func (a *app) away(err error) error {
	var p *api.Problem
	var u *url.Error
	switch {
	case err == nil || errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &p) && p.Code == "input.unauthorized":
		return problem(p.Code, "the server does not accept the token; is it of another installation? %s", p.Detail)
	case errors.As(err, &p):
		return err
	case errors.As(err, &u):
		conf, cerr := a.configuration()
		if cerr != nil {
			return err
		}
		return problem("infra.control_plane_away", "no server answers at %s: is `cofferdam up` running? (%v)", conf.URL, u.Err)
	}
	return err
}

// names of units for sizes in bytes.
const sizeUnits = "kMGTP"

// size is a number of bytes for people.
func size(n int64) string {
	if n < 1000 {
		return fmt.Sprintf("%d B", n)
	}
	f, i := float64(n)/1000, 0
	for f >= 999.5 && i < len(sizeUnits)-1 {
		f /= 1000
		i++
	}
	if f < 10 {
		return fmt.Sprintf("%.1f %cB", f, sizeUnits[i])
	}
	return fmt.Sprintf("%.0f %cB", f, sizeUnits[i])
}

// ask runs one short question to the server.
func (a *app) ask(ctx context.Context, work func(context.Context, *client.Client) error) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	c, err := a.client()
	if err != nil {
		return err
	}
	return a.away(work(ctx, c))
}

// stay runs work that takes time and outlives a restart of the server.
func (a *app) stay(ctx context.Context, work func(context.Context, *client.Client) error) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	c, err := a.connected(ctx)
	if err != nil {
		return err
	}
	return a.away(work(ctx, c))
}

// host is what commands of other folders are given.
func (a *app) host() host.Host {
	return host.Host{
		Ask: a.ask, Stay: a.stay, JSON: func() bool { return a.json }, Print: func(v any) error { return printJSON(a.Out, v) },
		Failed: func() error { return &exitError{1} }, In: a.In, Out: a.Out, Err: a.Err,
	}
}
