package main

import (
	"fmt"
	"strings"

	"meridian/tools/internal/gomodule"
	"meridian/tools/internal/licence"
)

// thirdPartyLicences is the text that must accompany a binary: most licences of what is linked into it ask that
// their notice travels along. Modules with the very same text share one copy of it.
func thirdPartyLicences(modules []gomodule.Module) string {
	var texts []string
	holders := map[string][]string{}
	for _, module := range modules {
		for _, file := range module.Files {
			text := strings.TrimSpace(file.Text)
			if holders[text] == nil {
				texts = append(texts, text)
			}
			holders[text] = append(holders[text], fmt.Sprintf("%s %s: %s", module.Path, module.Version, file.Path))
		}
	}
	var all strings.Builder
	all.WriteString("This program contains code of the following modules, under the licences given with each.\n")
	for _, text := range texts {
		fmt.Fprintf(&all, "\n%s\n%s\n\n%s\n", strings.Repeat("=", 78), strings.Join(holders[text], "\n"), text)
	}
	return all.String()
}

// licensesOf returns the identifiers of a module that may be shipped.
func licensesOf(module gomodule.Module) ([]string, error) {
	ids, err := licence.IDs(module.Files)
	if err == nil {
		err = licence.Judge(ids, licence.Shipped)
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w; run the licence check for what to do", module.Path, module.Version, err)
	}
	return ids, nil
}
