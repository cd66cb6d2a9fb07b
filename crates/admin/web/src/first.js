document.documentElement.className = localStorage.getItem("ekiden-key") === null ? "new" : "known";
