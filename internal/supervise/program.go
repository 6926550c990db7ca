package supervise

import (
	"path/filepath"
	"time"
)

// program says how one daemon is started.
type program struct {
	name   string
	folder string
	as     owner
	grace  time.Duration // between being asked to stop and being killed
	// args are made anew at each start, since a neighbour's address may have changed.
	args func() ([]string, error)
}

const (
	grace      = 10 * time.Second
	drainGrace = 2 * time.Minute // every sandbox is destroyed meanwhile
)

// order is the order of starting; ending goes the other way.
func order() []string {
	return []string{"cofferdam-engine", "cofferdamd", "cofferdam-gateway", workerName}
}

const workerName = "cofferdam-worker"

// supervisorName is the record of the supervisor itself.
const supervisorName = "up"

func (s *supervisor) programs() []program {
	l, data := s.layout, []string{"--data", s.layout.Data}
	return []program{
		{name: "cofferdam-engine", folder: "engine", as: s.users.service, grace: grace, args: func() ([]string, error) { return data, nil }},
		{name: "cofferdamd", folder: "cofferdamd", as: s.users.service, grace: grace, args: func() ([]string, error) {
			args := append([]string{}, data...)
			args = append(args, "--listen", s.listen)
			if s.opts.ListenPublic {
				args = append(args, "--listen-public")
			}
			if s.opts.Hosts != "" {
				args = append(args, "--hosts", s.opts.Hosts)
			}
			for flag, d := range map[string]time.Duration{"--keep-tasks": s.opts.KeepTasks, "--keep-outputs": s.opts.KeepOutputs} {
				if d > 0 {
					args = append(args, flag, d.String())
				}
			}
			if s.opts.Issuer != "" {
				args = append(args, "--issuer", s.opts.Issuer)
			}
			if s.opts.PublishDelay > 0 {
				args = append(args, "--identity-publish-delay", s.opts.PublishDelay.String())
			}
			if s.opts.Prices != "" {
				args = append(args, "--prices", l.prices())
			}
			if s.opts.OperatorPolicy != "" {
				args = append(args, "--operator-policy", l.operatorPolicy())
			}
			return append(args, s.outside()...), nil
		}},
		{name: "cofferdam-gateway", folder: "gateway", as: s.users.gateway, grace: grace, args: func() ([]string, error) {
			args := append([]string{}, data...)
			args = append(args, s.outside()...)
			args = append(args, "--control", s.url, "--control-token-file", l.gatewayToken(), "--protect", s.listen)
			engine, err := l.boot("engine")
			if err != nil {
				return nil, err
			}
			for _, own := range append([]string{engine.Address}, engine.Inner...) {
				args = append(args, "--protect", own)
			}
			return args, nil
		}},
		workerProgram(l, s.opts.Bin, s.url, s.opts.Images),
	}
}

// outside is how a program that dials outside looks names up and whom it trusts.
func (s *supervisor) outside() []string {
	var args []string
	if s.opts.DNS != "" {
		args = append(args, "--dns", s.opts.DNS)
	}
	if s.opts.Roots != "" {
		args = append(args, "--roots", s.layout.roots())
	}
	return args
}

func workerProgram(l Layout, bin, url, images string) program {
	return program{name: workerName, folder: "worker", grace: grace, args: func() ([]string, error) {
		args := []string{
			"--data", l.Data, "--server", url, "--token-file", l.workerToken(),
			"--runsc", filepath.Join(bin, "runsc"), "--guest", filepath.Join(bin, "cofferdam-guest"),
		}
		if images != "" {
			args = append(args, "--images", images)
		}
		return args, nil
	}}
}
