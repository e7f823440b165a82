package doctor

import "strings"

func nixl(p *boundedHost) finding {
	found := p.installed().describe([]string{"libnixl.so", "libnixl_capi.so"}, []string{"nixl", "nixl_cu12", "nixl_cu13"}, nil)
	if len(found) == 0 {
		return absent("no libnixl.so, no Python package nixl", "Not needed today. To have it:\n    pip install nixl")
	}
	return ok(strings.Join(found, "; "))
}

func mooncake(p *boundedHost) finding {
	found := p.installed().describe(nil, []string{"mooncake"}, wantedPrograms)
	if len(found) == 0 {
		return absent("no Python package mooncake, no mooncake_master on PATH",
			"Not needed today. To have it:\n    pip install mooncake-transfer-engine")
	}
	return ok(strings.Join(found, "; "))
}

func (s *software) describe(libraries, packages, programs []string) []string {
	var found []string
	for _, name := range libraries {
		if lib, there := s.libraries[name]; there {
			found = append(found, lib.path())
		}
	}
	for _, name := range packages {
		if pkg, there := s.packages[name]; there {
			found = append(found, pkg.String())
		}
	}
	for _, name := range programs {
		if program, there := s.programs[name]; there {
			found = append(found, program)
		}
	}
	return found
}
