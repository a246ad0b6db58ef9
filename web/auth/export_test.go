package auth

import "google.golang.org/grpc"

// Answers returns how many answers of the store are kept.
func (a *Authenticator) Answers() int {
	a.credentials.mu.Lock()
	defer a.credentials.mu.Unlock()
	return len(a.credentials.answers)
}

// Unlisted returns the methods of the services that are not in the table, and those of the table that no service has.
func Unlisted(services map[string]grpc.ServiceInfo) (missing, stale []string) {
	served := map[string]bool{}
	for name, service := range services {
		for _, m := range service.Methods {
			method := "/" + name + "/" + m.Name
			served[method] = true
			if _, ok := methods[method]; !ok {
				missing = append(missing, method)
			}
		}
	}
	for method := range methods {
		if !served[method] {
			stale = append(stale, method)
		}
	}
	return missing, stale
}
