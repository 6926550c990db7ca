package imports

// noIO is what a pure room may not use.
func noIO() []string {
	return []string{"os", "os/exec", "net", "net/http", "io/ioutil", "syscall", "math/rand", "math/rand/v2", "crypto/rand", "database/sql", "log", "log/slog"}
}

// Rooms is the first table: what a room may import. The reasons stand in
// internal/README.md.
func Rooms() map[string]Room {
	const task, sandbox, stage = "internal/task", "internal/sandbox", "internal/stage"
	return map[string]Room{
		"api":                     {},
		"client":                  {Rooms: []string{"api"}},
		"internal/task":           {Not: noIO()},
		"internal/policy":         {Rooms: []string{task}, Foreign: []string{"go.yaml.in/yaml/v4", "golang.org/x/net/publicsuffix"}, Not: noIO()},
		"internal/policy/access":  {Rooms: []string{task, "internal/policy/match"}, Foreign: []string{"go.yaml.in/yaml/v4"}, Not: noIO()},
		"internal/policy/match":   {Rooms: []string{task}, Not: noIO()},
		"internal/policy/models":  {Not: noIO()},
		"internal/policy/graphql": {Rooms: []string{task, "internal/policy/models"}, Foreign: []string{"github.com/vektah/gqlparser/v2"}, Not: noIO()},
		// All that the gateway has of policy: it reads no files.
		"internal/policy/decide":         {Rooms: []string{task, "internal/policy/match", "internal/policy/models", "internal/policy/graphql"}, Not: noIO()},
		"internal/policy/example":        {Rooms: []string{task, "internal/policy/decide"}, Not: noIO()},
		"internal/policy/tools":          {Rooms: []string{task}, Foreign: []string{"go.yaml.in/yaml/v4"}, Not: noIO()},
		"internal/policy/presets":        {Foreign: []string{"go.yaml.in/yaml/v4"}, Not: noIO()},
		"internal/policy/ending":         {Foreign: []string{"go.yaml.in/yaml/v4"}, Not: noIO()},
		"internal/policy/verdicts":       {Rooms: []string{task}, Foreign: []string{"go.yaml.in/yaml/v4"}, Not: noIO()},
		"internal/policy/verifying":      {Rooms: []string{task}, Not: noIO()},
		"internal/policy/vercel":         {Foreign: []string{"go.yaml.in/yaml/v4"}, Not: noIO()},
		"internal/stage":                 {Rooms: []string{task, sandbox}, Not: noIO()},
		"internal/stage/steps":           {Rooms: []string{task, sandbox, stage, "internal/output/glob", "internal/output/evidence", "internal/output/report"}, Not: []string{"os/exec", "net", "net/http"}},
		"internal/stage/steps/environ":   {Rooms: []string{task}, Not: noIO()},
		"internal/stage/steps/fact":      {Rooms: []string{task}, Not: noIO()},
		"internal/stage/steps/flagged":   {Rooms: []string{task, stage, "internal/stage/steps/fact"}, Not: noIO()},
		"internal/stage/steps/granted":   {Rooms: []string{task}, Not: noIO()},
		"internal/stage/steps/listing":   {Rooms: []string{task, "internal/output/glob"}, Not: noIO()},
		"internal/stage/steps/sealed":    {Rooms: []string{task, stage}, Not: noIO()},
		"internal/stage/steps/script":    {Not: noIO()},
		"internal/stage/steps/toolgate":  {Rooms: []string{task, stage}, Not: noIO()},
		"internal/stage/steps/tree":      {Rooms: []string{task}, Not: noIO()},
		"internal/stage/steps/verified":  {Rooms: []string{task, stage, "internal/output/evidence", "internal/output/report", "internal/stage/steps/fact"}, Not: noIO()},
		"internal/stage/temporal":        {Rooms: []string{task, sandbox, stage}, Foreign: []string{"go.temporal.io", "google.golang.org/protobuf", "google.golang.org/grpc"}},
		"internal/sandbox":               {Rooms: []string{task}},
		"internal/sandbox/ledger":        {Foreign: []string{"golang.org/x/sys"}},
		"internal/sandbox/gvisor":        {Rooms: []string{task, sandbox, "internal/guest"}, Foreign: []string{"golang.org/x/sys", "github.com/opencontainers/runtime-spec", "github.com/vishvananda/netlink", "github.com/vishvananda/netns", "golang.org/x/sync"}},
		"internal/sandbox/gvisor/lower":  {Foreign: []string{"github.com/opencontainers/runtime-spec"}},
		"internal/sandbox/gvisor/rootfs": {Foreign: []string{"golang.org/x/sys"}},
		"internal/sandbox/gvisor/denial": {Rooms: []string{task, "."}, Foreign: []string{"golang.org/x/sys"}},
		// Within the sandbox's kernel: a part of runsc, and of no other program.
		"internal/sandbox/gvisor/denial/sink": {Rooms: []string{"internal/sandbox/gvisor/denial"}, Foreign: []string{"golang.org/x/sys", "gvisor.dev/gvisor/pkg"}},
		"internal/sandbox/sandboxtest":        {Rooms: []string{task, sandbox}, Any: true},
		"internal/guest/agent/trust":          {Foreign: []string{"github.com/pavlo-v-chernykh/keystore-go/v4"}},
		"internal/guest":                      {Foreign: []string{"golang.org/x/sys"}},
		"internal/egress":                     {Rooms: []string{task, "internal/policy/decide"}, Foreign: []string{"gvisor.dev/gvisor/pkg", "github.com/miekg/dns", "golang.org/x/sys", "golang.org/x/net", "golang.org/x/time"}},
		"internal/egress/keeper":              {Rooms: []string{task, sandbox, "internal/egress/handover", "internal/egress/names", "internal/egress/record"}, Foreign: []string{"golang.org/x/sys"}},
		"internal/egress/handover":            {Rooms: []string{task, "internal/egress/names"}, Foreign: []string{"golang.org/x/sys"}},
		"internal/agent":                      {Rooms: []string{task, stage}, Not: noIO()},
		"internal/agent/catalog":              {Not: noIO()},
		"internal/agent/acp":                  {Rooms: []string{task, stage, "internal/agent"}, Foreign: []string{"github.com/coder/acp-go-sdk"}, Not: noIO()},
		"internal/agent/acp/acptest":          {Rooms: []string{"internal/agent/acp"}, Foreign: []string{"github.com/coder/acp-go-sdk"}},
		"internal/agent/install":              {Rooms: []string{task, "internal/agent/catalog"}, Foreign: []string{"golang.org/x/sys"}, Not: []string{"os/exec"}},
		"internal/agent/modeltest":            {},
		"internal/agent/loop":                 {Rooms: []string{task, sandbox, stage}, Not: []string{"os/exec"}},
		"internal/agent/loop/anthropic":       {Rooms: []string{task, "internal/agent/loop"}, Foreign: []string{"github.com/anthropics/anthropic-sdk-go/v2"}, Not: []string{"os", "os/exec"}},
		"internal/agent/loop/openai":          {Rooms: []string{task, "internal/agent/loop"}, Foreign: []string{"github.com/openai/openai-go/v3"}, Not: []string{"os", "os/exec"}},
		"internal/audit":                      {Rooms: []string{task}, Foreign: []string{"golang.org/x/mod/sumdb", "github.com/gowebpki/jcs"}},
		"internal/output":                     {Rooms: []string{task}, Foreign: []string{"gocloud.dev"}},
		"internal/output/report":              {Not: noIO()},
		"internal/output/evidence":            {Rooms: []string{task, "internal/output/report", "internal/output/flags/patch"}, Not: noIO()},
		"internal/output/flags":               {Rooms: []string{task}, Foreign: []string{"golang.org/x/text/unicode/norm"}, Not: noIO()},
		"internal/output/flags/patch":         {Not: noIO()},
		"internal/output/flags/secrets":       {Rooms: []string{"internal/output/flags"}, Foreign: []string{"github.com/zricethezav/gitleaks/v8/detect"}, Not: noIO()},
		"internal/store":                      {Rooms: []string{task, sandbox, stage, "internal/audit", "internal/identity"}, Foreign: []string{"github.com/uptrace/bun", "github.com/pressly/goose/v3", "modernc.org/sqlite"}},
		"internal/identity":                   {Rooms: []string{task}},
		"internal/identity/pace":              {Not: noIO()},
		"internal/identity/issuer":            {Rooms: []string{task, "internal/boot", "internal/identity/pace"}, Foreign: []string{"github.com/go-jose/go-jose/v4"}, Not: []string{"os/exec"}},
		"internal/attack":                     {Not: []string{"os", "os/exec", "net", "net/http"}},
		"internal/attack/inside":              {Rooms: []string{"internal/attack"}, Foreign: []string{"golang.org/x/sys"}},
		"internal/budget":                     {Rooms: []string{task, sandbox, "internal/budget/price"}, Not: []string{"os", "os/exec", "net", "net/http", "database/sql"}},
		"internal/budget/price":               {Rooms: []string{task}, Not: noIO()},
		"internal/approval":                   {Rooms: []string{task}, Not: []string{"os", "os/exec", "net", "net/http", "database/sql"}},
		"internal/store/approvals":            {Rooms: []string{task, "internal/approval", "internal/store/table"}, Foreign: []string{"github.com/uptrace/bun"}},
		"internal/credential":                 {Rooms: []string{task}, Not: []string{"os/exec", "net", "net/http"}},
		"internal/credential/provider":        {Rooms: []string{task, "internal/credential"}, Not: []string{"os", "os/exec"}},
		"internal/credential/githubapp":       {Rooms: []string{task, "internal/credential"}, Not: []string{"os", "os/exec"}},
		"internal/credential/oauth":           {Rooms: []string{task, "internal/credential"}, Not: []string{"os", "os/exec"}},
		"internal/credential/login":           {Rooms: []string{task, "internal/credential"}, Not: []string{"os/exec"}},
		"internal/credential/sts":             {Rooms: []string{task, "internal/credential"}, Not: []string{"os", "os/exec"}},
		"internal/boot":                       {Foreign: []string{"golang.org/x/sys"}},
		"internal/egress/outbound":            {Rooms: []string{task, "internal/policy/decide", "internal/egress/answer", "internal/egress/guard", "internal/egress/meter", "internal/egress/sigv4"}, Foreign: []string{"github.com/miekg/dns", "golang.org/x/net/http/httpguts"}},
		"internal/egress/answer":              {Rooms: []string{task}},
		"internal/egress/meter":               {Rooms: []string{task}, Not: []string{"os", "os/exec", "net"}},
		"internal/egress/sigv4":               {Rooms: []string{task}, Not: noIO()},
		"internal/egress/strict":              {Foreign: []string{"golang.org/x/net/http/httpguts"}},
		"internal/egress/egresstest":          {Rooms: []string{task, "internal/egress"}, Any: true},
		"internal/fleet":                      {Rooms: []string{task, sandbox, stage}, Foreign: []string{"github.com/hashicorp/yamux"}},
		"internal/fleet/link":                 {Rooms: []string{task, sandbox}, Foreign: []string{"github.com/hashicorp/yamux"}},
		"internal/worker":                     {Rooms: []string{task, sandbox, "internal/fleet/link"}},
		"internal/server/runidentity":         {Rooms: []string{"api", "internal/identity", "internal/server/operation"}},
		"internal/server/verification":        {Rooms: []string{"api", task}},
		"internal/server/incident":            {Rooms: []string{"api", task, "internal/identity", "internal/server/operation", "internal/server/problem"}},
		"internal/server/evidence":            {Rooms: []string{"api", task, sandbox, "internal/audit/evidence", "internal/identity", "internal/server/operation", "internal/server/problem"}, Foreign: []string{"github.com/danielgtaylor/huma/v2"}},
		"internal/server/keys":                {Rooms: []string{"api", task, "internal/identity", "internal/server/operation", "internal/server/problem"}},
		"internal/server/paced":               {},
		"internal/server/problem":             {Rooms: []string{"api", task}, Foreign: []string{"github.com/danielgtaylor/huma/v2"}},
		"internal/server":                     {Rooms: []string{"api", task, sandbox, stage, "internal/identity", "internal/fleet", "internal/output/glob"}, Foreign: []string{"github.com/danielgtaylor/huma/v2"}},
		"internal/server/turns":               {Rooms: []string{task, "internal/server/operation"}},
		"internal/server/budgets":             {Rooms: []string{"api", task, "internal/identity", "internal/budget", "internal/server/operation", "internal/server/turns"}},
		"internal/server/approvals":           {Rooms: []string{"api", task, "internal/identity", "internal/approval", "internal/server/operation", "internal/server/turns", "internal/server/translate"}},
		"internal/cli":                        {Rooms: []string{"api", "client", "internal/attack", "internal/audit", "internal/supervise"}, Foreign: []string{"github.com/spf13/cobra", "github.com/spf13/pflag", "charm.land/lipgloss/v2", "golang.org/x/term", "golang.org/x/sys"}},
		"internal/supervise":                  {Foreign: []string{"golang.org/x/sys"}},
		"internal/testenv":                    {Rooms: []string{"api", "client"}, Any: true},
	}
}

// Programs is the second table: what a program may not reach.
func Programs() map[string]Program {
	vendors := []string{"gvisor.dev", "go.temporal.io", "modernc.org", "gocloud.dev"}
	return map[string]Program{
		"cofferdam": {Not: append([]string{
			"internal/server", "internal/store", "internal/stage", "internal/sandbox", "internal/guest", "internal/egress",
			"internal/policy", "internal/fleet", "internal/worker", "internal/output", "internal/identity", "internal/testenv", "internal/credential", "internal/approval", "internal/budget",
		}, vendors...)},
		// It is brought into sandboxes, and knows nothing of ours.
		"cofferdam-attack": {Not: append([]string{
			"internal/task", "internal/policy", "internal/stage", "internal/sandbox", "internal/egress", "internal/store", "internal/audit", "internal/output", "internal/server",
			"internal/identity", "internal/fleet", "internal/worker", "internal/cli", "internal/supervise", "internal/testenv", "internal/credential", "internal/guest", "api", "client",
		}, vendors...)},
		"cofferdamd": {Not: []string{
			"gvisor.dev", "internal/sandbox/gvisor", "internal/sandbox/ledger", "internal/guest", "internal/egress/netstack", "internal/egress/keeper", "internal/egress/handover", "internal/egress/authority", "internal/egress/names", "internal/egress/record", "internal/egress/splice", "internal/egress/lender", "internal/worker",
			"internal/cli", "internal/supervise", "internal/testenv", "client", "go.temporal.io/server",
		}},
		"cofferdam-worker": {Not: []string{
			"internal/agent/loop", "internal/agent/modeltest",
			"internal/action", "internal/approval", "internal/credential", "internal/store", "internal/policy", "internal/audit", "internal/output", "internal/stage",
			"internal/server", "internal/identity", "internal/cli", "internal/testenv", "go.temporal.io", "modernc.org", "client", "api",
		}},
		"cofferdam-gateway": {Not: []string{
			"internal/policy/presets", "internal/policy/vercel", "go.yaml.in/yaml/v4",
			"internal/sandbox/gvisor", "internal/guest", "internal/store", "internal/stage", "internal/server", "internal/audit", "internal/output", "internal/credential", "internal/approval",
			"internal/fleet", "internal/worker", "internal/cli", "internal/testenv", "go.temporal.io", "modernc.org", "client", "api",
		}},
		"cofferdam-guest": {Not: []string{
			"internal/task", "internal/policy", "internal/stage", "internal/sandbox", "internal/egress", "internal/store", "internal/audit",
			"internal/output", "internal/server", "internal/identity", "internal/fleet", "internal/worker", "internal/cli", "internal/supervise",
			"internal/testenv", "api", "client", "gvisor.dev", "go.temporal.io", "internal/guest/host", "net", "net/http",
		}},
		// Of ours only the sink that tells what was refused on protected files.
		"runsc": {Not: []string{
			"internal/agent", "internal/approval", "internal/audit", "internal/boot", "internal/cli", "internal/credential", "internal/egress", "internal/fleet", "internal/guest",
			"internal/identity", "internal/output", "internal/policy", "internal/sandbox/ledger", "internal/server", "internal/stage", "internal/store",
			"internal/supervise", "internal/testenv", "internal/worker", "api", "client",
		}},
	}
}
