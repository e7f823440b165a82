package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

const ourLicence = "Apache-2.0"

// newBOM starts the bill of materials of subject. Its time is that of the commit, so that it can be made again.
func newBOM(subject cdx.Component, stamp Stamp) *cdx.BOM {
	subject.BOMRef = subject.PackageURL
	subject.Licenses = licenseChoice([]string{ourLicence})
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{
		Timestamp: stamp.Time.Format(time.RFC3339),
		Component: &subject,
		Tools: &cdx.ToolsChoice{Components: &[]cdx.Component{
			{Type: cdx.ComponentTypeApplication, Name: "meridian/tools/release", Version: stamp.Version.String()},
		}},
	}
	return bom
}

// writeBOM writes bom as CycloneDX 1.6 JSON. The serial number is derived from the content: the same materials have
// the same number.
func writeBOM(path string, bom *cdx.BOM) error {
	content, err := encodeBOM(bom)
	if err != nil {
		return err
	}
	bom.SerialNumber = serialNumber(content)
	if content, err = encodeBOM(bom); err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o644)
}

func encodeBOM(bom *cdx.BOM) ([]byte, error) {
	var content bytes.Buffer
	encoder := cdx.NewBOMEncoder(&content, cdx.BOMFileFormatJSON).SetPretty(true).SetEscapeHTML(false)
	if err := encoder.EncodeVersion(bom, cdx.SpecVersion1_6); err != nil {
		return nil, fmt.Errorf("bill of materials: %w", err)
	}
	return content.Bytes(), nil
}

// serialNumber is a UUID of version 8 (RFC 9562), which leaves the rest of the bits to us.
func serialNumber(content []byte) string {
	sum := sha256.Sum256(content)
	id := sum[:16]
	id[6] = id[6]&0x0f | 0x80
	id[8] = id[8]&0x3f | 0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", id[0:4], id[4:6], id[6:8], id[8:10], id[10:16])
}

func licenseChoice(ids []string) *cdx.Licenses {
	if len(ids) == 1 {
		return &cdx.Licenses{{License: &cdx.License{ID: ids[0]}}}
	}
	return &cdx.Licenses{{Expression: strings.Join(ids, " AND ")}}
}

// packageURL builds a purl; version may be empty.
func packageURL(kind, name, version string) string {
	purl := "pkg:" + kind + "/" + strings.ToLower(name)
	if version != "" {
		purl += "@" + strings.ReplaceAll(version, "+", "%2B")
	}
	return purl
}
