package ui_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// What others wrote is here as they published it, with its licence, and nothing else is in the folder.
func TestVendoredFilesAreWhatTheirListSays(t *testing.T) {
	t.Parallel()
	const folder = "static/vendor"
	content, err := os.ReadFile(filepath.Join(folder, "vendor.json"))
	if err != nil {
		t.Fatal(err)
	}
	var list []struct {
		File, Package, Version, License string
		LicenseFile                     string `json:"license_file"`
		SHA256                          string
	}
	if err := json.Unmarshal(content, &list); err != nil {
		t.Fatal(err)
	}
	known := []string{"vendor.json"}
	for _, v := range list {
		known = append(known, v.File, v.LicenseFile)
		file, err := os.ReadFile(filepath.Join(folder, v.File))
		if err != nil {
			t.Error(err)
			continue
		}
		if sum := sha256.Sum256(file); hex.EncodeToString(sum[:]) != v.SHA256 {
			t.Errorf("%s is not what %s %s published: its SHA-256 is %x", v.File, v.Package, v.Version, sum)
		}
		if licence, err := os.ReadFile(filepath.Join(folder, v.LicenseFile)); err != nil || len(licence) < 100 || v.License == "" || v.Version == "" {
			t.Errorf("%s: its licence %s %q, %v", v.File, v.License, licence, err)
		}
	}
	files, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !slices.Contains(known, f.Name()) {
			t.Errorf("%s is in no list", f.Name())
		}
	}
}
