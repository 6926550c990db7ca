package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/cofferdam/cofferdam/internal/identity"
	"github.com/cofferdam/cofferdam/internal/server/operation"
	"github.com/cofferdam/cofferdam/internal/server/problem"
	"github.com/cofferdam/cofferdam/internal/server/strict"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Options says what a server is made of. Only Hosts, Tunnel and DataDir may be
// left out.
type Options struct {
	Boot    string   // the daemon's boot id
	Version string   // of the program
	Hosts   []string // names, without ports, that clients may call this server by, besides the loopback ones
	DataDir string   // doctor looks at the free space here
	// AuditKeys are the public key that receipts are signed with and those before it.
	AuditKeys  func() (key string, former []string)
	Log        *slog.Logger
	Identities *identity.Identities
	Needs      Needs
	Tunnel     http.Handler // the workers' way in, at /v1/worker/connect; asked for a token of role worker first
	Now        func() time.Time
}

// Server answers the API. It is an http.Handler.
type Server struct {
	boot, version string
	dataDir       string
	auditKeys     func() (key string, former []string)
	hosts         map[string]bool
	log           *slog.Logger
	identities    *identity.Identities
	need          Needs
	now           func() time.Time
	api           huma.API
	door          *operation.Door
	manual        manual
	inlineWait    time.Duration // tests make it short
	handler       http.Handler
	closing       context.Context // ends when streams must break off
	stop          context.CancelFunc
}

// New returns a server over what o names.
func New(o Options) (*Server, error) {
	n := o.Needs
	for name, missing := range map[string]bool{
		"Boot": o.Boot == "", "AuditKeys": o.AuditKeys == nil, "Log": o.Log == nil, "Identities": o.Identities == nil, "Now": o.Now == nil,
		"Tasks": n.Tasks == nil, "Events": n.Events == nil, "Engine": n.Engine == nil, "Policies": n.Policies == nil,
		"Blobs": n.Blobs == nil, "Owners": n.Owners == nil, "Places": n.Places == nil, "Commands": n.Commands == nil, "Console": n.Console == nil,
		"Files": n.Files == nil, "Single": n.Single == nil, "Workers": n.Workers == nil, "Audit": n.Audit == nil, "Denials": n.Denials == nil, "Credentials": n.Credentials == nil, "Policy": n.Policy == nil, "History": n.History == nil,
		"Removal": n.Removal == nil, "Agents": n.Agents == nil, "Harnesses": n.Harnesses == nil,
	} {
		if missing {
			return nil, fmt.Errorf("server options: %s is missing", name)
		}
	}
	s := &Server{
		boot: o.Boot, version: o.Version, dataDir: o.DataDir, auditKeys: o.AuditKeys, hosts: map[string]bool{},
		log: o.Log, identities: o.Identities, need: n, now: o.Now, inlineWait: inlineWait,
	}
	s.closing, s.stop = context.WithCancel(context.Background())
	for _, h := range o.Hosts {
		s.hosts[strings.ToLower(strings.Trim(h, "[]"))] = true
	}
	mux := http.NewServeMux()
	s.describe(mux)
	if o.Tunnel != nil {
		mux.Handle("/v1/worker/connect", s.workersOnly(o.Tunnel))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.writeProblem(w, r, problem.Refuse(task.Fail(task.InputNotFound, "no operation "+r.Method+" "+problem.Quote(r.URL.Path)+"; /openapi.json lists them", nil)))
	})
	s.handler = s.front(mux)
	return s, nil
}

// describe registers every operation.
func (s *Server) describe(mux *http.ServeMux) {
	config := huma.DefaultConfig("Cofferdam", s.version)
	config.Info.Description = "Runs coding agents in isolated sandboxes. Every failure is an application/problem+json document with a reason code."
	config.DocsPath, config.SchemasPath, config.CreateHooks = "", "", nil
	config.Formats = map[string]huma.Format{"application/json": strict.JSON(), "json": strict.JSON()}
	config.Transformers = []huma.Transformer{s.problems}
	config.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"bearer": {Type: "http", Scheme: "bearer", Description: "A token, cfd_…"},
	}
	config.OpenAPIPath = "" // served below: one form, and made once
	s.api = humago.New(mux, config)
	s.door = &operation.Door{API: s.api, Identities: s.identities, Failed: s.logFailure, Refused: s.writeProblem, Seen: func(ctx context.Context, user string) {
		if note, ok := ctx.Value(seenKey{}).(*seen); ok {
			note.user = user
		}
	}}
	s.describeInstallation()
	s.describeTasks()
	s.describeOutputs()
	s.describeSandboxes()
	s.describeCommands()
	s.describeConsole()
	s.describeFiles()
	s.describeCredentials()
	s.describePolicies()
	s.describeAgents()
	s.describeDenials()
	for _, desk := range s.need.Desks {
		desk.Describe(s.door)
	}
	// huma documents its own error type although no answer has it.
	schemas := s.api.OpenAPI().Components.Schemas.Map()
	delete(schemas, "ErrorModel")
	delete(schemas, "ErrorDetail")
	doc, err := s.api.OpenAPI().MarshalJSON()
	if err != nil {
		panic(fmt.Sprintf("server: the API can't be described: %v", err)) // a fault in the types, found by any test
	}
	mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/vnd.oai.openapi+json;version=3.1")
		_, _ = w.Write(doc)
	})
}

// workersOnly asks for a worker's token before the tunnel is opened.
func (s *Server) workersOnly(tunnel http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, err := s.door.Verify(r.Context(), r.Header.Get("Authorization"), []identity.Role{identity.Worker})
		if err != nil {
			s.writeProblem(w, r, err)
			return
		}
		tunnel.ServeHTTP(w, r.WithContext(operation.As(r.Context(), p)))
	})
}

// Subject says for whom a request to the tunnel speaks: the user of the
// worker's token, which this server verified before it called the tunnel.
func Subject(r *http.Request) (string, error) {
	p := who(r.Context())
	if p.Role != identity.Worker || p.User == "" {
		return "", task.Fail(task.InputUnauthed, "no valid worker token", nil)
	}
	return p.User, nil
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Close breaks off all streams. Serve calls it.
func (s *Server) Close() { s.stop() }

// Listen opens address, which must be on the loopback interface unless
// anywhere is true: without TLS in front, the API's tokens would be readable
// on the network.
func Listen(ctx context.Context, address string, anywhere bool) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, task.Fail(task.InputInvalid, "listen address "+problem.Quote(address)+": must be HOST:PORT, such as 127.0.0.1:7070", err)
	}
	if ip := net.ParseIP(host); !anywhere && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, task.Fail(task.InputInvalid, "listen address "+problem.Quote(address)+": is not on the loopback interface; allow it explicitly, behind something that speaks TLS", nil)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, task.Fail(task.InputInvalid, "listen address "+problem.Quote(address)+": can't be opened; is another program using the port?", err)
	}
	// localhost is a name: believe what was opened, not what was asked for.
	if tcp, ok := l.Addr().(*net.TCPAddr); !anywhere && (!ok || !tcp.IP.IsLoopback()) {
		_ = l.Close()
		return nil, task.Fail(task.InputInvalid, "listen address "+problem.Quote(address)+": is not on the loopback interface", nil)
	}
	return l, nil
}

// Serve answers on l until ctx ends, then breaks streams off, lets short
// requests finish and returns nil.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	srv := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }()
	select {
	case err := <-failed:
		s.Close()
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	s.Close()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := srv.Shutdown(grace); err != nil {
		_ = srv.Close()
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	}
	return nil
}
