package cli

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/cofferdam/cofferdam/api"
)

// fakeFiles answers about single files: the sandbox's folder has them.
func (s *site) fakeFiles(mux *http.ServeMux) {
	const base = "/v1/sandboxes/{id}/files/"
	for pattern, handle := range map[string]func(w http.ResponseWriter, r *http.Request, at string){
		"GET " + base + "entry": func(w http.ResponseWriter, _ *http.Request, at string) { tellFile(w, at) },
		"DELETE " + base + "entry": func(w http.ResponseWriter, r *http.Request, at string) {
			remove := os.Remove
			if r.URL.Query().Get("recursive") == "true" {
				remove = os.RemoveAll
			}
			if err := remove(at); err != nil {
				refuse(w, 409, "input.conflict", "is a folder that is not empty")
				return
			}
			w.WriteHeader(204)
		},
		"POST " + base + "entry/rename": func(w http.ResponseWriter, r *http.Request, at string) {
			to := s.inside(r.PathValue("id"), r.URL.Query().Get("to"))
			if _, err := os.Lstat(to); err == nil && r.URL.Query().Get("noReplace") == "true" {
				refuse(w, 409, "input.conflict", "is there already")
				return
			}
			if err := os.Rename(at, to); err != nil {
				refuse(w, 500, "infra.internal", err.Error())
				return
			}
			tellFile(w, to)
		},
		"POST " + base + "entry/mode": func(w http.ResponseWriter, r *http.Request, at string) {
			mode, err := strconv.ParseUint(r.URL.Query().Get("mode"), 8, 32)
			if err != nil || mode > 0o777 {
				refuse(w, 422, "input.invalid", "query.mode: it must be octal, 0 to 0777")
				return
			}
			if err := os.Chmod(at, fs.FileMode(mode)); err != nil {
				refuse(w, 404, "input.not_found", "no such file")
				return
			}
			tellFile(w, at)
		},
		"GET " + base + "folder": listFolder,
		"POST " + base + "folder": func(w http.ResponseWriter, r *http.Request, at string) {
			if err := os.Mkdir(at, 0o755); err != nil && r.URL.Query().Get("parents") != "true" {
				refuse(w, 409, "input.conflict", "is there already")
				return
			}
			tellFile(w, at)
		},
		"GET " + base + "content": sendFile,
		"PUT " + base + "content": takeFile,
	} {
		mux.HandleFunc(pattern, s.authorized(s.withSandbox(func(w http.ResponseWriter, r *http.Request, b api.Sandbox) {
			p := r.URL.Query().Get("path")
			if !strings.HasPrefix(p, "/workspace") || path.Clean(p) != p {
				refuse(w, 422, "input.invalid", "path lies beneath none of /workspace")
				return
			}
			handle(w, r, s.inside(b.ID, p))
		})))
	}
}

func fileInfo(at string) (api.FileInfo, error) {
	st, err := os.Lstat(at)
	if err != nil {
		return api.FileInfo{}, err
	}
	info := api.FileInfo{Kind: "file", Size: st.Size(), Mode: "0" + strconv.FormatUint(uint64(st.Mode().Perm()), 8), Links: 1, Modified: st.ModTime()}
	if info.Name = path.Base(at); !utf8.ValidString(info.Name) {
		info.Name, info.NameBase64 = "", base64.StdEncoding.EncodeToString([]byte(info.Name))
	}
	switch {
	case st.IsDir():
		info.Kind = "folder"
	case st.Mode()&fs.ModeSymlink != 0:
		info.Kind = "link"
		info.Target, err = os.Readlink(at)
	}
	return info, err
}

func tellFile(w http.ResponseWriter, at string) {
	info, err := fileInfo(at)
	if err != nil {
		refuse(w, 404, "input.not_found", "no such file or directory")
		return
	}
	answer(w, 200, info)
}

// listFolder gives two entries a page, so that there are pages.
func listFolder(w http.ResponseWriter, r *http.Request, at string) {
	entries, err := os.ReadDir(at)
	if err != nil {
		refuse(w, 422, "input.invalid", "is no folder")
		return
	}
	page := api.FileList{Entries: []api.FileInfo{}}
	after := r.URL.Query().Get("after")
	i := slices.IndexFunc(entries, func(e fs.DirEntry) bool { return e.Name() > after })
	for ; i >= 0 && i < len(entries); i++ {
		if len(page.Entries) == 2 {
			page.NextBase64 = base64.StdEncoding.EncodeToString([]byte(entries[i-1].Name()))
			break
		}
		info, err := fileInfo(path.Join(at, entries[i].Name()))
		if err != nil {
			refuse(w, 500, "infra.internal", err.Error())
			return
		}
		page.Entries = append(page.Entries, info)
	}
	answer(w, 200, page)
}

func sendFile(w http.ResponseWriter, r *http.Request, at string) {
	info, err := fileInfo(at)
	if err != nil || info.Kind != "file" {
		refuse(w, 422, "input.invalid", "is no file")
		return
	}
	data, err := os.ReadFile(at)
	if err != nil {
		refuse(w, 500, "infra.internal", err.Error())
		return
	}
	if n, err := strconv.Atoi(r.URL.Query().Get("offset")); err == nil {
		data = data[min(n, len(data)):]
	}
	if n, err := strconv.Atoi(r.URL.Query().Get("length")); err == nil {
		data = data[:min(n, len(data))]
	}
	text, _ := json.Marshal(info)
	w.Header().Set(api.FileHeader, url.QueryEscape(string(text)))
	length := len(data)
	if strings.HasSuffix(at, "shrinks") {
		length++
	}
	w.Header().Set("Content-Length", strconv.Itoa(length))
	_, _ = w.Write(data)
}

func takeFile(w http.ResponseWriter, r *http.Request, at string) {
	q := r.URL.Query()
	data, err := io.ReadAll(r.Body)
	old, missing := os.ReadFile(at)
	switch {
	case err != nil:
		refuse(w, 422, "input.invalid", err.Error())
	case strconv.Itoa(len(data)) != q.Get("size") || sumOf(data) != q.Get("sha256") || q.Get("key") == "":
		refuse(w, 422, "input.invalid", "other bytes than announced")
	case missing == nil && q.Get("create") == "true", q.Get("ifSha256") != "" && sumOf(old) != q.Get("ifSha256"):
		refuse(w, 409, "input.conflict", "has changed; its sha256 is "+sumOf(old))
	case os.WriteFile(at, data, 0o644) != nil:
		refuse(w, 404, "input.not_found", "no such folder")
	default:
		tellFile(w, at)
	}
}

func sumOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
