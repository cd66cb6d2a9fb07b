//! Names and credentials that others have.

use super::{StoreError, sql};
use sqlx::{Any, Row as _, Transaction};

/// Errors: another account than `id` has a name that differs from `name` by case alone. Log-in, commands and the API tell
/// the two apart, and people do not. Names may have any letters: SQLite knows the case of ASCII's alone.
pub(super) async fn refuse_similar(
    transaction: &mut Transaction<'_, Any>,
    id: i64,
    name: &str,
) -> Result<(), StoreError> {
    let found = sqlx::query(sql::SIMILAR).bind(name).bind(id);
    match found.fetch_optional(&mut **transaction).await? {
        None => Ok(()),
        Some(row) => {
            Err(StoreError::NameSimilar { there: row.try_get("name")?, asked: name.to_owned() })
        }
    }
}

pub(super) fn taken(error: sqlx::Error, name: &str) -> StoreError {
    if is_taken(&error) { StoreError::NameTaken(name.to_owned()) } else { error.into() }
}

pub(super) fn is_taken(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|error| error.is_unique_violation())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::Account;
    use crate::store::Store;

    #[tokio::test]
    async fn no_name_comes_that_differs_by_case_alone_and_two_that_are_there_go_on() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::in_folder(folder.path()).await.unwrap();
        for name in ["Ann", "bob"] {
            store.add(&Account::named(name)).await.unwrap();
        }
        let rename = async |from: &str, to: &str| {
            let change = store.change(from, |account| {
                to.clone_into(&mut account.name);
                Ok(())
            });
            change.await.map(drop)
        };
        for refused in
            [store.add(&Account::named("ann")).await.map(drop), rename("bob", "ann").await]
        {
            let why = refused.unwrap_err().to_string();
            assert_eq!(
                why,
                "account \"Ann\" exists already, and \"ann\" differs from it by case alone; use another name"
            );
        }
        let same = store.add(&Account::named("Ann")).await.unwrap_err();
        assert!(matches!(same, StoreError::NameTaken(_)), "{same}");
        // as an earlier version took it
        let both = sqlx::query("UPDATE account SET name = 'ann' WHERE name = 'bob'");
        both.execute(&store.pool).await.unwrap();
        rename("ann", "ann").await.unwrap();
        rename("Ann", "Anna").await.unwrap();
        // a name may change its own case
        rename("ann", "Ann").await.unwrap();
        assert_eq!(store.account("Ann").await.unwrap().name, "Ann");
    }
}
