package api

// ModelAccess is by which authority a task's agent asks its models.
type ModelAccess struct {
	Mode       string `json:"mode" doc:"direct (the vendor, with its key or with a login) or gateway (a gateway of models, with its key alone)."`
	Credential string `json:"credential" doc:"Its name in the vault."`
	Kind       string `json:"kind,omitempty" doc:"Of a login: claude-login or codex-login. Empty: a key."`
	URL        string `json:"url" doc:"Where models are asked."`
}
