// Package trust makes the programs of a sandbox trust the sandbox's own
// authority beside those that its root trusts already.
//
// Words. The bundle is one PEM file with all of them. Most programs read it
// where systems have it or where a variable says; Java reads a store of its own
// kind, which is made from the bundle. The variables that add to what a program
// trusts name the authority alone, those that replace it name the bundle.
//
// Not promised: programs that pin a certificate, or that carry their own list
// and read no variable.
package trust

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	keystore "github.com/pavlo-v-chernykh/keystore-go/v4"
)

// Where everything is put.
const (
	Bundle    = "/etc/ssl/certs/ca-certificates.crt"
	Authority = "/etc/cofferdam/ca.pem"
	javaStore = "/etc/cofferdam/trust.jks"
	wgetrc    = "/etc/cofferdam/wgetrc"
	// The store holds nothing secret: the password is the one that Java's own has.
	javaPassword = "changeit"
)

// elsewhere are the places where other systems have their bundle.
var elsewhere = []string{"/etc/pki/tls/certs/ca-bundle.crt", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"}

// Env is the environment by which programs find the authority.
func Env() []string {
	var env []string
	for _, name := range []string{
		"SSL_CERT_FILE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "REQUESTS_CA_BUNDLE", "PIP_CERT", "AWS_CA_BUNDLE", "CARGO_HTTP_CAINFO",
		"npm_config_cafile", "CODEX_CA_CERTIFICATE",
		// By their documentation.
		"NIX_SSL_CERT_FILE", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", "HTTPLIB2_CA_CERTS", "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE",
		"BUNDLE_SSL_CA_CERT", "COMPOSER_CAFILE", "PERL_LWP_SSL_CA_FILE", "HEX_CACERTS_PATH", "CONDA_SSL_VERIFY",
	} {
		env = append(env, name+"="+Bundle)
	}
	return append(env,
		"NODE_EXTRA_CA_CERTS="+Authority, "NODE_USE_SYSTEM_CA=1",
		"DENO_CERT="+Authority, "DENO_TLS_CA_STORE=system",
		"UV_NATIVE_TLS=1", "UV_SYSTEM_CERTS=1",
		"WGETRC="+wgetrc,
		"JAVA_TOOL_OPTIONS=-Djavax.net.ssl.trustStore="+javaStore+" -Djavax.net.ssl.trustStorePassword="+javaPassword+" -Djavax.net.ssl.trustStoreType=JKS",
	)
}

// Install puts the authority (one or more certificates as PEM, the sandbox's own
// first) into the files beneath root. Doing it again changes nothing.
func Install(root string, authority []byte) error {
	for rest := authority; len(bytes.TrimSpace(rest)) > 0 || len(authority) == 0; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil || block.Type != "CERTIFICATE" {
			return errors.New("the authority is not PEM certificates alone")
		}
	}
	authority = append(bytes.TrimSpace(authority), '\n')
	if err := replace(root, Authority, authority); err != nil {
		return err
	}
	bundle, err := extended(root, authority)
	if err != nil {
		return err
	}
	if err := replace(root, wgetrc, []byte("ca_certificate = "+Bundle+"\n")); err != nil {
		return err
	}
	store, err := javaStoreOf(bundle)
	if err != nil {
		return err
	}
	return replace(root, javaStore, store)
}

// extended adds the authority to the bundle, wherever the system has it, and
// gives the whole. Where the usual place is empty it is filled from another.
func extended(root string, authority []byte) ([]byte, error) {
	var whole []byte
	for _, path := range append([]string{Bundle}, elsewhere...) {
		old, err := os.ReadFile(filepath.Join(root, path))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		with := joined(old, authority)
		if whole == nil {
			whole = with
		}
		if path == Bundle || bytes.Equal(with, old) {
			continue // written below, or the authority is in it
		}
		if err := replace(root, path, with); err != nil {
			return nil, err
		}
	}
	if whole == nil {
		whole = authority
	}
	return whole, replace(root, Bundle, whole)
}

// joined adds the authority to a bundle that doesn't have it.
func joined(old, authority []byte) []byte {
	if bytes.Contains(old, authority) {
		return old
	}
	if len(old) > 0 && old[len(old)-1] != '\n' {
		old = append(old, '\n')
	}
	return append(old, authority...)
}

// javaStoreOf makes Java's store of trusted certificates (JKS). The same bundle
// gives the same store.
func javaStoreOf(bundle []byte) ([]byte, error) {
	store := keystore.New(keystore.WithOrderedAliases())
	for n := 0; ; n++ {
		block, rest := pem.Decode(bundle)
		if block == nil {
			break
		}
		bundle = rest
		if block.Type != "CERTIFICATE" {
			continue
		}
		entry := keystore.TrustedCertificateEntry{CreationTime: time.Unix(0, 0), Certificate: keystore.Certificate{Type: "X.509", Content: block.Bytes}}
		if err := store.SetTrustedCertificateEntry("authority-"+strconv.Itoa(n), entry); err != nil {
			return nil, fmt.Errorf("store for Java: %w", err)
		}
	}
	var out bytes.Buffer
	if err := store.Store(&out, []byte(javaPassword)); err != nil {
		return nil, fmt.Errorf("store for Java: %w", err)
	}
	return out.Bytes(), nil
}

// replace writes a file in one step, unless it is as it should be.
func replace(root, path string, text []byte) error {
	path = filepath.Join(root, path)
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, text) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	half := path + ".new"
	if err := os.WriteFile(half, text, 0o644); err != nil { // everybody inside reads it
		return err
	}
	if err := os.Rename(half, path); err != nil {
		return fmt.Errorf("replace: %w", errors.Join(err, os.Remove(half)))
	}
	return nil
}
